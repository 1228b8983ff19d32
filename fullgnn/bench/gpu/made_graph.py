"""A graph of a job: its size chosen, made on the device, ordered. A later worker finds what was decided."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fullgnn.bench.gpu.budget import largest_scale
from fullgnn.bench.gpu.lookalikes import (
    LOOKALIKES,
    TOYS,
    Lookalike,
    density_shares,
    generate,
    local_csr,
    metis_order,
    metis_predicted_s,
)
from fullgnn.bench.gpu.random_graph import CSR, RandomGraph
from fullgnn.bench.gpu.timing import synchronize
from fullgnn.bench.gpu.worker import Report, Task
from fullgnn.kernels.spmm import LocalCSR

PROBE_SCALE = 0.05
_METIS_SHARE = 0.2  # of the time that is left
_SCALE_SHARE = 0.5  # of it, for what grows with the graph
_MEMORY_SHARE = 0.7  # of what is free on the device


class MadeGraph:
    """The graph that ``task.arguments`` names: ``graph``, ``scale`` (null: the largest that fits), and ``scratch``, a
    folder that outlives this worker.

    Args:
        prepare: of a small block, as often as the job does it: what it takes counts where the size is chosen.
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
        self.shape: Lookalike = {**LOOKALIKES, **TOYS}[self.name]
        self.scratch = Path(task.arguments["scratch"]) / self.name
        self.scratch.mkdir(parents=True, exist_ok=True)

    def make(self) -> tuple[RandomGraph, CSR, Tensor] | None:
        """The graph as it was made, its pattern in order, and the order; None where that failed."""
        scale = self._decided_scale()
        graph = self._report.item("generate", partial(self._generate, scale), limit_s=90, always=True)
        if graph is None:
            return None
        perm = self._order(graph)
        csr = self._report.item("build", partial(self._build, graph, perm), limit_s=90, always=True)
        return None if csr is None else (graph, csr, perm)

    def put(self, key: str, value: Any, *further: str) -> None:
        """Into the record of this graph."""
        self._report.put(["graphs", self.name, key, *further], value)

    def add(self, key: str, value: Any) -> None:
        self._report.add(["graphs", self.name, key], value)

    def _decided_scale(self) -> float:
        """As asked for, as an earlier worker chose, or the largest at which the first results fit time and memory."""
        kept = self.scratch / "scale.json"
        if kept.exists():
            return json.loads(kept.read_text())
        scale = self._task.arguments["scale"] or (1.0 if self._task.toy else None)
        scale = scale or self._report.item("probe", self._largest_scale, limit_s=90) or largest_scale(self._fits_memory)
        kept.write_text(json.dumps(scale))
        return scale

    def _largest_scale(self) -> float:
        """From what a small graph of the kind takes, in proportion; that also compiles and loads what is needed."""
        self._probe()
        probe_s = self._probe()

        def seconds(scale: float) -> float:
            return scale * (probe_s / PROBE_SCALE + self._host_s_per_entry * self.shape.num_edges)

        allowed = _SCALE_SHARE * self._report.budget.left
        scale = largest_scale(lambda one: seconds(one) <= allowed and self._fits_memory(one))
        self.put("scale_reason", f"{seconds(scale):.0f} s predicted for set-up, {allowed:.0f} s allowed")
        return scale

    def _fits_memory(self, scale: float) -> bool:
        return self.shape.num_bytes(scale) <= _MEMORY_SHARE * torch.cuda.mem_get_info(self._device)[0]

    def _probe(self) -> float:
        """Seconds to make a small graph and to prepare it."""
        begin = time.monotonic()
        graph = generate(self.shape, PROBE_SCALE, 1, self._device)
        self._prepare(local_csr(graph.csr(graph.perm)))
        synchronize(self._device)
        return time.monotonic() - begin

    def _generate(self, scale: float) -> RandomGraph:
        begin = time.perf_counter()
        graph = generate(self.shape, scale, 0, self._device)
        synchronize(self._device)
        self.put("scale", scale)
        self.put("generate_s", time.perf_counter() - begin)
        return graph

    def _order(self, graph: RandomGraph) -> Tensor:
        """METIS where it is there and quick enough; otherwise the order in which the communities were made."""
        predicted_s, kept = metis_predicted_s(2 * len(graph.pairs)), self.scratch / "perm.npy"
        reason = "METIS (pymetis) is not installed"
        if kept.exists():
            return torch.from_numpy(np.load(kept)).to(self._device)
        if predicted_s is not None:
            allowed = _METIS_SHARE * self._report.budget.left
            reason = f"METIS would take about {predicted_s:.0f} s, and {allowed:.0f} s are allowed"
            if predicted_s <= allowed:
                begin = time.perf_counter()
                perm = self._report.item("metis", lambda: metis_order(graph.csr(), 0), limit_s=4 * allowed + 5)
                reason = "METIS failed"
                if perm is not None:
                    np.save(kept, perm.cpu().numpy())
                    self.put("order", "metis")
                    self.put("metis_s", time.perf_counter() - begin)
                    return perm
        self.put("order", "the generator's communities")
        self.put("order_reason", reason)
        return graph.perm

    def _build(self, graph: RandomGraph, perm: Tensor) -> CSR:
        csr = graph.csr(perm)
        self.put("num_nodes", csr.num_nodes)
        self.put("nnz", csr.nnz)
        self.put("longest_row", int(csr.indptr.diff().max()))
        self.put("shape", asdict(self.shape))
        self.put("tile_density", density_shares(csr))
        return csr
