"""The graph of a job: its size is chosen, it is made on the device and ordered."""

import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fullgnn.bench.gpu.budget import largest_scale
from fullgnn.bench.gpu.lookalikes import LOOKALIKES, TOYS, generate, metis_order
from fullgnn.bench.gpu.random_graph import RandomGraph
from fullgnn.bench.gpu.worker import Report, Task
from fullgnn.kernels.spmm import LocalCSR
from fullgnn.kernels.spmm.tiles import tile_density
from fullgnn.telemetry.timing import synchronize, wall_ms

METIS_S_PER_ENTRY = 1.3e-6
"""Seconds that METIS takes for a stored entry, on one core."""

PROBE_SCALE = 0.05
_METIS_SHARE = 0.2  # of the time that is left
_SCALE_SHARE = 0.5  # of the time that is left, for what grows with the graph
_MEMORY_SHARE = 0.7  # of what is free on the device


class MadeGraph:
    """The graph that ``task.arguments`` names: ``graph``, ``scale`` (null: the largest that fits) and ``scratch``, a
    folder that outlives this process; with ``keep``, later jobs on the graph find it there.

    Args:
        prepare: prepares a small block as often as the job does; its time counts where the size is chosen.
        host_s_per_entry: seconds that the job spends on the host for each entry of the graph.
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

    def put(self, key: str, value: Any, *further: str) -> None:
        """Set a leaf of the record of this graph."""
        self._report.put(["graphs", self.name, key, *further], value)

    def add(self, key: str, value: Any) -> None:
        """Append to a list of the record of this graph."""
        self._report.add(["graphs", self.name, key], value)

    def _scale(self) -> float:
        """The scale that was asked for, or the largest that fits time and memory."""
        scale = self._task.arguments["scale"] or (1.0 if self._task.toy else None)
        scale = scale or self._report.item("probe", self._largest_scale, limit_s=90)
        return scale or largest_scale(self._fits_memory)

    def _largest_scale(self) -> float:
        """The largest scale whose set-up fits, predicted from a small graph, which also compiles the kernels."""

        def probe() -> None:
            graph = generate(self.shape, PROBE_SCALE, 1, self._device)
            self._prepare(graph.csr(graph.perm))

        probe()
        whole_s = wall_ms(probe, self._device) / 1e3 / PROBE_SCALE + self._host_s_per_entry * self.shape.num_edges
        allowed = _SCALE_SHARE * self._report.budget.left
        scale = largest_scale(lambda one: one * whole_s <= allowed and self._fits_memory(one))
        self.put("scale_reason", f"{scale * whole_s:.0f} s predicted for set-up, {allowed:.0f} s allowed")
        return scale

    def _fits_memory(self, scale: float) -> bool:
        return self.shape.num_bytes(scale) <= _MEMORY_SHARE * torch.cuda.mem_get_info(self._device)[0]

    def _generate(self, scale: float) -> RandomGraph:
        begin = time.perf_counter()
        graph = generate(self.shape, scale, 0, self._device)
        synchronize(self._device)
        self.put("scale", scale)
        self.put("generate_s", time.perf_counter() - begin)
        return graph

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
            perm = self._report.item("metis", lambda: metis_order(graph.csr(), 0), limit_s=4 * allowed + 5)
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
