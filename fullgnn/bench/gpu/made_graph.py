"""The graph of an item: its size is chosen, it is made on the device and ordered."""

import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from fullgnn.bench.gpu.worker import Report, Task
from fullgnn.graph.generate_on_device import RandomGraph
from fullgnn.graph.lookalikes import LOOKALIKES, TOYS, Lookalike, generate
from fullgnn.kernels.spmm import LocalCSR
from fullgnn.kernels.spmm.tiles import tile_density
from fullgnn.telemetry.machine import available_memory
from fullgnn.telemetry.timing import wall_ms

SCALES = (1.0, 0.5, 0.25, 0.1, 0.05, 0.02)
"""Sizes of a graph that are tried, largest first."""

PROBE_SCALE = 0.05
METIS_S_PER_ENTRY = 1.3e-6
"""Seconds that METIS takes for a stored entry, on one core."""

_METIS_SHARE = 0.2  # of the time that is left
_SCALE_SHARE = 0.5  # of the time that is left, for what grows with the graph
_MEMORY_SHARE = 0.7  # of what is free on the device


class MadeGraph:
    """The graph that ``task.arguments`` names: ``graph``, ``scale`` (null: the largest that fits) and ``scratch``, a
    folder that outlives this process; with ``keep``, later items on the graph find it there.

    Args:
        prepare: prepares a small block as often as the item does; its time counts where the size is chosen.
        host_s_per_entry: seconds that the item spends on the host for each entry of the graph.
    """

    def __init__(
        self,
        task: Task,
        report: Report,
        prepare: Callable[[LocalCSR], object] = lambda block: None,
        host_s_per_entry: float = 0.0,
    ):
        self._task, self._report, self._device = task, report, task.device
        self._prepare, self._host_s_per_entry = prepare, host_s_per_entry
        self.name: str = task.arguments["graph"]
        self.shape = {**LOOKALIKES, **TOYS}[self.name]
        self.scratch = Path(task.arguments["scratch"]) / self.name
        self.scratch.mkdir(parents=True, exist_ok=True)

    def make(self) -> tuple[RandomGraph, LocalCSR, Tensor] | None:
        """The graph as it was made, its pattern in order, and the order; None where that failed."""
        kept = self.scratch / "graph.pt"
        graph: RandomGraph | None
        if kept.exists():
            stored = torch.load(kept, map_location=self._device, weights_only=True)
            graph, perm = RandomGraph(**stored["graph"]), stored["perm"]
        else:
            graph = self._report.item("generate", partial(self._generate, self._scale()), limit_s=90)
            if graph is None:
                return None
            perm = self._order(graph)
            if self._task.arguments.get("keep"):
                torch.save({"graph": vars(graph), "perm": perm}, kept)
        csr = self._report.item("build", partial(self._build, graph, perm), limit_s=90)
        return None if csr is None else (graph, csr, perm)

    def put(self, key: str, value: Any) -> None:
        """Set a leaf of the record of this graph."""
        self._report.put(["graphs", self.name, key], value)

    def add(self, key: str, value: Any) -> None:
        """Append to a list of the record of this graph."""
        self._report.add(["graphs", self.name, key], value)

    def _scale(self) -> float:
        """The scale that was asked for, or the largest that fits time and memory."""
        scale = self._task.arguments["scale"] or (1.0 if self._task.toy else None)
        scale = scale or self._report.item("probe", self._probe, limit_s=90)
        return scale or largest_scale(self._fits_memory)

    def _probe(self) -> float:
        """The largest scale whose set-up fits, predicted from a small graph, which also compiles the kernels."""

        def set_up() -> None:
            graph = generate(self.shape, PROBE_SCALE, 1, self._device)
            self._prepare(graph.csr(graph.perm))

        set_up()
        whole_s = wall_ms(set_up, self._device) / 1e3 / PROBE_SCALE + self._host_s_per_entry * self.shape.num_edges
        allowed = _SCALE_SHARE * self._report.budget.left
        scale = largest_scale(lambda one: one * whole_s <= allowed and self._fits_memory(one))
        self.put("scale_reason", f"{scale * whole_s:.0f} s predicted for set-up, {allowed:.0f} s allowed")
        return scale

    def _fits_memory(self, scale: float) -> bool:
        return num_bytes(self.shape, scale) <= _MEMORY_SHARE * available_memory(self._device)

    def _generate(self, scale: float) -> RandomGraph:
        made: list[RandomGraph] = []
        ms = wall_ms(lambda: made.append(generate(self.shape, scale, 0, self._device)), self._device)
        self.put("scale", scale)
        self.put("generate_s", ms / 1e3)
        return made[0]

    def _order(self, graph: RandomGraph) -> Tensor:
        """METIS where it is there and quick enough; otherwise the order in which the communities were made."""
        predicted_s = METIS_S_PER_ENTRY * 2 * len(graph.pairs)
        allowed = _METIS_SHARE * self._report.budget.left
        if find_spec("pymetis") is None:
            reason = "METIS (pymetis) is not installed"
        elif predicted_s > allowed:
            reason = f"METIS would take about {predicted_s:.0f} s, and {allowed:.0f} s are allowed"
        else:
            begin = time.perf_counter()
            perm = self._report.item("metis", lambda: metis_order(graph.csr()), limit_s=4 * allowed + 5)
            if perm is not None:
                self.put("order", "metis")
                self.put("metis_s", time.perf_counter() - begin)
                return perm
            reason = "METIS failed"
        self.put("order", "the generator's communities")
        self.put("order_reason", reason)
        return graph.perm

    def _build(self, graph: RandomGraph, perm: Tensor) -> LocalCSR:
        csr = graph.csr(perm)
        self.put("num_nodes", csr.num_rows)
        self.put("nnz", csr.nnz)
        self.put("longest_row", int(csr.indptr.diff().max()))
        self.put("shape", asdict(self.shape))
        self.put("tile_density", tile_density(csr.indptr, csr.indices, csr.num_cols))
        return csr


def largest_scale(fits: Callable[[float], bool]) -> float:
    """The first of ``SCALES`` that fits, or the last."""
    return next((scale for scale in SCALES if fits(scale)), SCALES[-1])


def num_bytes(shape: Lookalike, scale: float) -> float:
    """Device memory that a graph and its training need at most: keys being sorted, kernels, features."""
    num_nodes, num_entries = shape.scaled(scale)
    return 130.0 * num_entries + 4.0 * num_nodes * (4 * shape.num_features + 8 * shape.hidden)


def metis_order(csr: LocalCSR) -> Tensor:
    """The order that ``reorder=metis`` finds in a run with the seed 0."""
    from fullgnn.reorder import metis

    indptr, indices = csr.indptr.cpu().numpy(), csr.indices.cpu().numpy()
    adj = csr_array((np.ones(csr.nnz, np.int8), indices, indptr), shape=(csr.num_rows,) * 2)
    return torch.from_numpy(metis(adj, 0)).to(csr.indptr.device)
