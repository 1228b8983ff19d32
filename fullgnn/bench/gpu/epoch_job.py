"""The epochs of one graph: ours and others', at two rates of dropout, and what the GPU does in one of ours."""

import json
from collections.abc import Iterable
from functools import partial
from importlib.util import find_spec

from fullgnn.bench.gpu import epoch
from fullgnn.bench.gpu.launches import EPOCHS, launch_table, profiled
from fullgnn.bench.gpu.lookalikes import make_nodes
from fullgnn.bench.gpu.made_graph import MadeGraph
from fullgnn.bench.gpu.ours import LATER, NOT_REPLAYED, OURS
from fullgnn.bench.gpu.training import Step, Training, as_training
from fullgnn.bench.gpu.worker import Report, Task
from fullgnn.kernels.support import gpu

FIRST = ("full", "naive", next(iter(epoch.PYG)), "hetu", *list(epoch.PYG)[1:])
"""In the order in which they run: what is asked first."""

_HOST_S_PER_ENTRY = len(OURS) * 6e-8  # each of ours cuts the adjacency on the host, for one process


def run(task: Task, report: Report) -> None:
    """Arguments of the task: those of ``MadeGraph``."""
    _EpochJob(task, report).run()


class _EpochJob:
    def __init__(self, task: Task, report: Report):
        self._task, self._report = task, report
        self._graph = MadeGraph(task, report, host_s_per_entry=_HOST_S_PER_ENTRY)
        self._tried: set[str] = set()

    def run(self) -> None:
        made = self._graph.make()
        if made is None:
            return
        graph, csr, perm = made
        nodes = self._report.item("features", partial(make_nodes, graph, self._graph.shape, perm, 0), always=True)
        del graph, made
        if nodes is None:
            return
        training = as_training(csr, nodes, self._graph.shape, str(self._graph.scratch / "kernels"))
        self._train(training, FIRST)
        self._train(training, LATER)

    def _train(self, training: Training, presets: Iterable[str]) -> None:
        """Every preset as an item."""
        predicted_s = 0.0 if self._task.toy else 6.0

        def run(preset: str) -> bool | None:
            if preset in self._tried:
                return None
            self._tried.add(preset)
            once = partial(self._once, preset, training)
            return self._report.item(f"epoch {preset}", once, limit_s=150, predicted_s=predicted_s)

        gpu.INTERPRETED = False  # for a toy ``auto`` takes a CPU's kernel: it has no GPU to time the others on
        for preset in presets:
            if preset in epoch.PYG and find_spec("torch_geometric") is None:
                self._report.missing(f"epoch {preset}", "torch_geometric is not installed")
            elif not run(preset) and preset == "full":
                run(NOT_REPLAYED)
        gpu.INTERPRETED = self._task.toy

    def _once(self, preset: str, training: Training) -> bool:
        def profile(dropout: float, step: Step) -> None:
            if preset == "full":
                table = launch_table(profiled(step, training.device), EPOCHS)
                self._graph.add("launches", {"preset": preset, "dropout": dropout, **table})

        dropouts = epoch.DROPOUTS if preset not in LATER else epoch.DROPOUTS[:1]
        slice_s = 0.05 if self._task.toy else 1.5
        for found in epoch.run_preset(preset, training, slice_s, dropouts, profile):
            found["loss_error"] = self._loss_error(preset, found["dropout"], found["losses"])
            self._graph.add("epoch", found)
        return True

    def _loss_error(self, preset: str, dropout: float, losses: list[float]) -> float | None:
        """Over the losses of the first preset that ran. With dropout, ours are compared with each other alone: the
        others draw other masks."""
        if dropout and preset not in (*OURS, *LATER):
            return None
        kept = self._graph.scratch / f"losses-{dropout}.json"
        if not kept.exists():
            kept.write_text(json.dumps(losses))
        return epoch.loss_error(losses, json.loads(kept.read_text()))
