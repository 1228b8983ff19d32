"""Several jobs in one process, for a toy: starting a process for each takes longer than what they do."""

from importlib import import_module

from fullgnn.bench.gpu.worker import Report, Task


def run(task: Task, report: Report) -> None:
    """Argument of the task: ``modules``, beside those of the jobs."""
    for module in task.arguments["modules"]:
        import_module(f"fullgnn.bench.gpu.{module}").run(task, report)
