"""Attention, sampled batches and recommendation: what ``products`` and ``epochs``, which know GCN alone, leave out."""

from functools import partial
from importlib.util import find_spec
from pathlib import Path

from fullgnn.bench.gpu.command import measured
from fullgnn.bench.gpu.worker import Report, Task

CASES = {
    "GAT": ["op=epoch", "gnn=gat", "graph=reddit-mini", "peers=[pyg]", "presets=[default]"],
    "sampled GraphSAGE": [
        "op=minibatch",
        "graph=products-mini",
        "peers=[pyg]",
        "presets=[default,'default cache=all','default cache=all loader.sample_on_gpu=true']",
    ],
    "LightGCN": ["op=epoch", "gnn=lightgcn", "graph=products-mini", "batch_size=65536", "peers=[torch]"],
    "GATv2": ["op=epoch", "gnn=gatv2", "graph=products-mini", "peers=[pyg]", "presets=[default]"],
    "GraphSAGE, maximum": ["op=epoch", "gnn=sage-max", "graph=products-mini", "peers=[pyg]", "presets=[default]"],
}
"""The keys of ``fullgnn.bench`` for each case, the most wanted first."""

_TOY_CASES = {
    "GAT": ["op=epoch", "gnn=gat", "graph=tiny", "peers=[torch]", "presets=[default]", "epochs=9", "threads=1"],
    "sampled GraphSAGE": ["op=minibatch", "graph=tiny", "batches=2", "rounds=4", "peers=[]", "threads=1"],
}
_LEAST_S, _MOST_S = 25.0, 150.0


def run(task: Task, report: Report) -> None:
    """Argument of the task: ``scratch``, a folder."""
    if find_spec("hydra") is None:
        report.missing("models", "hydra-core is not installed: pip install hydra-core")
        return
    scratch = Path(task.arguments["scratch"])

    def measure(name: str, keys: list[str]) -> None:
        limit_s = report.budget.left if task.toy else min(_MOST_S, report.budget.left)
        rows = measured(keys, task.device.type, scratch / name.replace(" ", "-").replace(",", ""), limit_s)
        report.put(["models", name], rows)

    for name, keys in (_TOY_CASES if task.toy else CASES).items():
        report.item(name, partial(measure, name, keys), report.budget.left + 5, 0.0 if task.toy else _LEAST_S)
