"""The job of one graph: made on the device, ordered, multiplied, trained on. What matters most comes first."""

import json
import logging
import time
from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fullgnn import gpu
from fullgnn.bench.gpu import epoch
from fullgnn.bench.gpu.budget import largest_scale
from fullgnn.bench.gpu.contestants import BASELINE, FIRST, VARIANTS, Contestant
from fullgnn.bench.gpu.lookalikes import (
    LOOKALIKES,
    TOYS,
    Lookalike,
    density_shares,
    generate,
    local_csr,
    make_nodes,
    metis_order,
    metis_predicted_s,
)
from fullgnn.bench.gpu.product import Products
from fullgnn.bench.gpu.random_graph import CSR, RandomGraph
from fullgnn.bench.gpu.timing import synchronize
from fullgnn.bench.gpu.worker import Report, Task

log = logging.getLogger(__name__)

WIDTHS = (8, 16, 41, 47, 64, 100, 128)
TOY_WIDTHS = (8, 41)
PROBE_SCALE = 0.05
_METIS_SHARE = 0.2  # of the time that is left
_SCALE_SHARE = 0.5  # of it, for what grows with the graph
_HOST_S_PER_ENTRY = 6e-8  # a preset of ours cuts the adjacency on the host, for one of them
_PREPARATIONS = 6  # of the first kernels: for their products, and where ``auto`` tries them on the blocks of training
_MEMORY_SHARE = 0.7  # of what is free on the device


def run(task: Task, report: Report) -> None:
    """Arguments of the task: ``graph``, ``scale`` (null: the largest that fits), ``rates`` of gathered rows, and
    ``scratch``, a folder where a worker that takes over finds what its forerunner has decided."""
    _GraphJob(task, report).run()


class _GraphJob:
    def __init__(self, task: Task, report: Report):
        self._task, self._report, self._device = task, report, task.device
        self._name = task.arguments["graph"]
        self._shape: Lookalike = {**LOOKALIKES, **TOYS}[self._name]
        self._scratch = Path(task.arguments["scratch"]) / self._name
        self._trained: set[str] = set()

    def run(self) -> None:
        report, shape = self._report, self._shape
        scale = self._decided_scale()
        graph = report.item("generate", partial(self._generate, scale), limit_s=90, always=True)
        if graph is None:
            return
        perm = self._order(graph)
        csr = report.item("build", partial(self._build, graph, perm), limit_s=90, always=True)
        if csr is None:
            return
        nodes = report.item("features", partial(make_nodes, graph, shape, perm, 0), always=True)

        products = Products(local_csr(csr), self._task.arguments["rates"], self._device)
        widths = TOY_WIDTHS if self._task.toy else WIDTHS
        headline = [width for width in (shape.num_classes, shape.hidden) if width in widths] or [widths[0], widths[-1]]
        others = [width for width in widths if width not in headline]
        first, variants = ([one for one in group if one.missing(self._device) is None] for group in (FIRST, VARIANTS))
        self._time(products, first, headline)
        products.release(*first)
        kept = str(self._scratch / "kernels")
        training = None if nodes is None else epoch.as_training(csr, nodes, shape, kept)
        self._train(training, epoch.PRESETS)
        self._time_shuffled(graph, headline)
        del graph
        self._time(products, first, others)
        products.release(BASELINE)
        self._time_variants(products, variants, headline[:1] if self._task.toy else headline)
        self._train(training, epoch.LATER)
        if not self._task.toy:
            self._time_variants(products, variants, others)

    # ---- the graph ---------------------------------------------------------------------------------------------------

    def _decided_scale(self) -> float:
        """As asked for, as an earlier worker chose, or the largest at which the first results fit time and memory."""
        kept = self._scratch / "scale.json"
        if kept.exists():
            return json.loads(kept.read_text())
        scale = self._task.arguments["scale"] or (1.0 if self._task.toy else None)
        scale = scale or self._report.item("probe", self._largest_scale, limit_s=90) or largest_scale(self._fits_memory)
        self._scratch.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(scale))
        return scale

    def _largest_scale(self) -> float:
        """From what a small graph of the kind takes, in proportion; that also compiles and loads what is needed."""
        self._probe()
        generate_s, prepare_s = self._probe()

        def seconds(scale: float) -> float:
            device_s = (generate_s + _PREPARATIONS * prepare_s) / PROBE_SCALE
            return scale * (device_s + len(epoch.OURS) * _HOST_S_PER_ENTRY * self._shape.num_edges)

        allowed = _SCALE_SHARE * self._report.budget.left
        scale = largest_scale(lambda one: seconds(one) <= allowed and self._fits_memory(one))
        self._put("scale_reason", f"{seconds(scale):.0f} s predicted for set-up, {allowed:.0f} s allowed")
        return scale

    def _fits_memory(self, scale: float) -> bool:
        return self._shape.num_bytes(scale) <= _MEMORY_SHARE * torch.cuda.mem_get_info(self._device)[0]

    def _probe(self) -> tuple[float, float]:
        """Seconds to make a small graph, and to prepare it for the first kernels."""
        begin = time.monotonic()
        graph = generate(self._shape, PROBE_SCALE, 1, self._device)
        block = local_csr(graph.csr(graph.perm))
        synchronize(self._device)
        made = time.monotonic()
        for one in FIRST:
            try:
                one.make().prepare(block, torch.float32)
            except Exception as error:  # it is reported where the kernel is timed
                log.info("%s: %s", one.name, error)
        synchronize(self._device)
        return made - begin, time.monotonic() - made

    def _generate(self, scale: float) -> RandomGraph:
        begin = time.perf_counter()
        graph = generate(self._shape, scale, 0, self._device)
        synchronize(self._device)
        self._put("scale", scale)
        self._put("generate_s", time.perf_counter() - begin)
        return graph

    def _order(self, graph: RandomGraph) -> Tensor:
        """METIS where it is there and quick enough; otherwise the order in which the communities were made."""
        predicted_s, kept = metis_predicted_s(2 * len(graph.pairs)), self._scratch / "perm.npy"
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
                    self._put("order", "metis")
                    self._put("metis_s", time.perf_counter() - begin)
                    return perm
        self._put("order", "the generator's communities")
        self._put("order_reason", reason)
        return graph.perm

    def _build(self, graph: RandomGraph, perm: Tensor) -> CSR:
        csr = graph.csr(perm)
        self._put("num_nodes", csr.num_nodes)
        self._put("nnz", csr.nnz)
        self._put("longest_row", int(csr.indptr.diff().max()))
        self._put("shape", asdict(self._shape))
        self._put("tile_density", density_shares(csr))
        return csr

    # ---- what is timed on it -----------------------------------------------------------------------------------------

    def _time(self, products: Products, contestants: list[Contestant], widths: list[int]) -> None:
        """Every contestant at every width, as an entry each."""
        slice_s = 0.02 if self._task.toy else 0.3
        for width in widths:
            for one in contestants:
                if self._task.ended_by(one.name):
                    continue
                self._report.item(
                    f"{one.name}, width {width}",
                    partial(self._time_one, products, one, width, slice_s),
                    limit_s=60,
                    predicted_s=0.0 if self._task.toy else 2.0,
                )

    def _time_variants(self, products: Products, variants: list[Contestant], widths: list[int]) -> None:
        """One after the other, so that only one of them is in memory."""
        for one in variants:
            self._time(products, [one], widths)
            products.release(BASELINE)

    def _time_one(self, products: Products, one: Contestant, width: int, seconds: float) -> None:
        found = products.time(one, width, seconds)
        self._add("spmm", found)
        for name, setup in products.setup.items():
            self._put("setup", setup, name)

    def _time_shuffled(self, graph: RandomGraph, widths: list[int]) -> None:
        """The baseline on the graph as it came."""

        def once() -> None:
            csr = graph.csr()
            self._put("tile_density_shuffled", density_shares(csr))
            products = Products(local_csr(csr), self._task.arguments["rates"], self._device)
            for width in widths:
                self._add("spmm_shuffled", products.time(BASELINE, width, 0.3))

        self._report.item("torch on the shuffled graph", once, predicted_s=0.0 if self._task.toy else 3.0)

    def _train(self, training: epoch.Training | None, presets: Iterable[str]) -> None:
        """The losses of the first preset are what all others' are compared with; None: there are no features."""
        if training is None:
            return
        kept = self._scratch / "losses.json"
        slice_s, predicted_s = (0.05, 0.0) if self._task.toy else (2.0, 8.0)

        def once(preset: str) -> bool:
            found = epoch.run_preset(preset, training, slice_s)
            if preset == epoch.PRESETS[0]:
                kept.write_text(json.dumps(found["losses"]))
            expected = json.loads(kept.read_text()) if kept.exists() else None
            found["loss_error"] = expected and epoch.loss_error(found["losses"], expected)
            self._add("epoch", found)
            return True

        def run(preset: str) -> bool | None:
            if preset in self._trained:
                return None
            self._trained.add(preset)
            return self._report.item(f"epoch {preset}", partial(once, preset), limit_s=150, predicted_s=predicted_s)

        gpu.INTERPRETED = False  # for a toy ``auto`` takes a CPU's kernel: it has no GPU to time the others on
        for preset in presets:
            if preset in epoch.PYG and find_spec("torch_geometric") is None:
                self._report.missing(f"epoch {preset}", "torch_geometric is not installed")
            elif not run(preset) and preset == "full":
                run(epoch.NOT_REPLAYED)
        gpu.INTERPRETED = self._task.toy

    def _put(self, key: str, value: Any, *further: str) -> None:
        self._report.put(["graphs", self._name, key, *further], value)

    def _add(self, key: str, value: Any) -> None:
        self._report.add(["graphs", self._name, key], value)
