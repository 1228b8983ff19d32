"""Times on the device: of the products (A + I) X of a look-alike, and of what they are compared with.

``op=products`` times every kernel at every width against its error. An error is that of an element over the sum of the
magnitudes of its addends; the exact product, in float64, is computed for some rows.

``op=rates`` times copies, gathered rows and dense products.

The inputs of an operation take turns, so that no cache holds an input from its last run. A CPU runs toys alone, in
Triton's interpreter: there are two runs on a CPU and no warm-up.
"""

import itertools
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fullgnn.bench.config import BenchConfig
from fullgnn.bench.harness import Cases, Measurement, Method, Outcome, Results, attempt, measure, rate, timed
from fullgnn.bench.problem import densities, make_graph
from fullgnn.distributed import World
from fullgnn.errors import FullGNNError
from fullgnn.kernels.spmm import Kernel, LocalCSR, Packed, Tile32, TorchCSR, TritonCSR
from fullgnn.kernels.support import gpu
from fullgnn.kernels.support.aligned import SECTOR_BYTES, empty_aligned
from fullgnn.kernels.support.rehearsal import rehearsal
from fullgnn.telemetry.timing import num_repeats, wall_ms

FLOAT32 = 1e-6
"""Error of a sum at float32 quality, over the sum of the magnitudes of its addends."""

_SECONDS = 0.25  # of the runs of a product
_NUM_SAMPLES = 1024


@dataclass(frozen=True)
class Contestant:
    """One kernel in one way of multiplying."""

    name: str  # as ``Kernel.name_for`` gives it
    make: Callable[[], Kernel]
    tolerance: float = FLOAT32
    """Largest error allowed of an element of the product, over the sum of the magnitudes of its addends."""

    def missing(self, device: torch.device) -> str | None:
        """Why this kernel does not multiply on ``device``; None where it does."""
        indptr, indices = (torch.tensor(ids, dtype=torch.int32, device=device) for ids in ([0, 1], [0]))
        block = LocalCSR(indptr, indices, None, 1, 1)
        return attempt(lambda: self.make().prepare(block, torch.float32), FullGNNError)[2]


BASELINE, CSR = Contestant("torch", TorchCSR), Contestant("csr", TritonCSR)
TILE32, PACKED = Contestant("tile32", Tile32), Contestant("packed", Packed)

FIRST = [BASELINE, CSR, TILE32, PACKED]
"""The contestants of float32 quality: timed at every width, before the other one."""

ROUNDED = Contestant("csr bf16", partial(TritonCSR, "bf16"), FLOAT32 + 2.0**-8)
"""``csr`` that is not exact: a number of 8 significant bits leaves half a unit of its last bit."""

CONTESTANTS = {contestant.name: contestant for contestant in (*FIRST, ROUNDED)}
"""The sparse kernels that are tested and timed, by name."""


def run(cfg: BenchConfig, world: World) -> Results:
    """The widths of the graph's model first, then the product of the shuffled graph, the other widths, and the kernel
    that is not exact."""
    device, toy = world.device, is_toy(world.device)
    cases, base = Cases(cfg.limit_s, device), dict[int, Measurement]()
    able = [contestant for contestant in FIRST if contestant.missing(device) is None]

    def prepare_all(block: LocalCSR) -> None:
        for contestant in able:
            contestant.make().prepare(block, torch.float32)

    made = make_graph(cfg, cases, prepare_all)
    shuffled, block, shape = made.graph.csr(), made.block, made.shape
    yield Outcome(problem=made.facts | {"tile_density_shuffled": densities(shuffled)})
    del made
    first = [width for width in cfg.widths if width in (shape.num_classes, shape.hidden)] or cfg.widths[:1]
    others = [width for width in cfg.widths if width not in first]
    groups = [*((contestant, block, first) for contestant in able), (BASELINE, shuffled, first[:1])]
    groups += [(contestant, block, others) for contestant in able]
    groups += [] if toy or ROUNDED.missing(device) is not None else [(ROUNDED, block, first)]

    for contestant, of_graph, widths in groups:
        name = f"{contestant.name}{', shuffled graph' if of_graph is shuffled else ''}"
        product = cache(partial(LookalikeProduct, contestant, of_graph, device, name))

        def time(width: int, product: Callable[[], LookalikeProduct] = product) -> Measurement:
            measured = product().time(width, world, _SECONDS, cfg.rates)
            measured.compare_with(base.setdefault(width, measured))
            return measured

        prepared, _, _ = attempt(product)  # not in a rehearsal, in which no kernel is launched
        if prepared is not None:
            compile_ahead([partial(prepared.launch, width) for width in widths], device)
        del prepared
        for width in widths:
            yield cases.run(name, partial(time, width), {"width": width}, 1.5)


class LookalikeProduct:
    """(A + I) X of a whole graph by one kernel, which is prepared with the constants of this moment."""

    def __init__(self, contestant: Contestant, block: LocalCSR, device: torch.device, name: str = ""):
        self._contestant, self._block, self._device, self._name = contestant, block, device, name or contestant.name
        kernel, blocks = contestant.make(), list[Any]()
        ms = wall_ms(lambda: blocks.append(kernel.prepare(block, torch.float32)), device)
        own = {block.indptr.data_ptr(), block.indices.data_ptr()}
        held = sum(tensor.nbytes for tensor in kernel.tensors(blocks[0]) if tensor.data_ptr() not in own)
        self._setup = {"setup_s": ms / 1e3, "beside_mb": held / 1e6}
        self._multiply, self._out = partial(kernel.spmm, blocks[0], accumulate=False), dict[int, Tensor]()

    def multiply(self, x: Tensor) -> Tensor:
        """The product with X; as in training, it is written where that of the last X of this width was."""
        out = self._out.setdefault(x.shape[1], x.new_empty(self._block.num_rows, x.shape[1]))
        self._multiply(x, out)
        return out

    def launch(self, width: int) -> None:
        """Multiply once."""
        self.multiply(torch.empty(self._block.num_cols, width, device=self._device))

    def time(self, width: int, world: World, seconds: float, rates: str | None = None) -> Measurement:
        """The times, error and rates of the product.

        Args:
            rates: a ``record.json`` of op=rates, see ``gather_rate``.
        """
        block, rows, inputs = self._block, sample_rows(self._block), rotated(self._block.num_cols, width, self._device)
        out = torch.full((block.num_rows, width), torch.nan, device=self._device)
        self._multiply(inputs[0], out)
        expected, magnitude = exact_rows(block, inputs[0], rows), exact_rows(block, inputs[0].abs(), rows)
        error = error_of(out[rows], expected, magnitude)
        layouts = {"lines": inputs}
        if self._contestant == BASELINE and not inputs[0].is_contiguous():
            # Rows as the users of torch have them, too: the better of the two counts.
            layouts["contiguous"] = [x.contiguous() for x in inputs]
        run, num_bytes = partial(self._multiply, out=out), width * 4
        about = rate("gathered_gb_per_s", block.nnz * num_bytes)
        method = Method(self._name, KERNEL, run, case={"width": width}, about=about)
        times = {layout: time_on_device(method, xs, world, seconds) for layout, xs in layouts.items()}
        layout = min(times, key=lambda layout: times[layout].median_ms)
        details, row_bytes = times[layout].details, inputs[0].stride(0) * 4
        resident = block.num_cols * row_bytes <= l2_bytes(self._device)
        sectors = -(-num_bytes // SECTOR_BYTES) * SECTOR_BYTES  # what a row of X is read as
        gathers = gather_rate(rates, sectors, resident)
        details |= {"error": error, "correct": error <= self._contestant.tolerance, "x_fits_l2": resident}
        details |= {"rows_of_x": layout, "row_bytes": row_bytes, "num_inputs": len(inputs), **self._setup}
        details["of_gather_rate_per_s"] = gathers and details["gathered_gb_per_s"] * sectors / num_bytes / gathers
        return times[layout]


def sample_rows(block: LocalCSR) -> Tensor:
    """(num_samples,) int64 rows, evenly spread, and the longest."""
    degree = block.indptr.diff()
    count = min(_NUM_SAMPLES, block.num_rows)
    spread = torch.linspace(0, block.num_rows - 1, count, dtype=torch.float64, device=degree.device).long()
    return torch.cat([spread, degree.argmax()[None]])


def exact_rows(block: LocalCSR, x: Tensor, rows: Tensor) -> Tensor:
    """(num_samples, F) float64 rows of the product of ``block``, all entries 1, and ``x``."""
    start, degree = block.indptr.long()[rows], block.indptr.long().diff()[rows]
    owner = torch.repeat_interleave(torch.arange(len(rows), device=x.device), degree)
    within = torch.arange(len(owner), device=x.device) - (degree.cumsum(0) - degree)[owner]
    column = block.indices[start[owner] + within].long()
    out = torch.zeros(len(rows), x.shape[1], dtype=torch.float64, device=x.device)
    return out.index_add_(0, owner, x.index_select(0, column).double())


def error_of(computed: Tensor, expected: Tensor, magnitude: Tensor) -> float:
    """Largest |computed - expected| / magnitude; NaN where a number is not finite.

    Args:
        expected: float64.
        magnitude: float64, the sum of the magnitudes of the addends of each element; where it is 0 the element is
            exact or the error infinite.
    """
    difference = (computed.double() - expected).abs()
    relative = torch.where(magnitude > 0, difference / magnitude.clamp(min=1e-300), torch.inf * difference.sign())
    return float(torch.where((difference == 0) & (magnitude == 0), 0.0, relative).max()) if computed.numel() else 0.0


ROW_BYTES, TABLES = (64, 128, 192, 256, 512), ("L2", "memory")
PRECISIONS = {"fp32": ("highest", torch.float32), "tf32": ("high", torch.float32), "bf16": ("highest", torch.bfloat16)}
_TILES = ((2048, 4), (4096, 4), (4096, 8))
"""Elements and warps of a program that are tried; the best counts."""

L2_MULTIPLE = 4
"""Rotated inputs take at least this many times the L2 cache."""

_MAX_INPUTS = 64
_ROUNDS, _MOST_RUNS_OF_ROUND, _CPU_ROUNDS = 5, 8, 2
_CPU_L2_BYTES = 1 << 16  # small, so that a toy run on a CPU rotates as well

KERNEL = "kernel"
"""The kind of the methods that are timed on the device."""

Case = dict[str, Any]


def run_rates(cfg: BenchConfig, world: World) -> Results:
    """A case for each rate; a toy measures few of them, on small arrays."""
    cases, toy = Cases(cfg.limit_s, world.device), is_toy(world.device)
    every: list[tuple[Any, Case]] = [(copy, {})]
    every += [(gather, {"row_bytes": row, "table": at}) for row in ROW_BYTES[: 2 if toy else None] for at in TABLES]
    every += [(gemm, {"precision": precision}) for precision in PRECISIONS]
    for measured, case in every:
        yield cases.run(measured.__name__, partial(measured, world, case, toy), case)


def copy(world: World, case: Case, toy: bool) -> Measurement:
    """GB/s of a copy, read and written."""
    source, target = (torch.ones(1 << (14 if toy else 29), device=world.device) for _ in range(2))
    method = Method("copy", KERNEL, target.copy_, about=rate("gb_per_s", 2 * source.nbytes))
    return time_on_device(method, [source], world)


def gather(world: World, case: Case, toy: bool) -> Measurement:
    """GB/s of whole rows read at random places of a table, by our kernel and by ``index_select``, which writes too."""
    # Here, not above: it imports Triton, without which the other rates are measured.
    from fullgnn.bench.gpu._gather_gpu import gather_sum

    device, row_bytes, l2 = world.device, case["row_bytes"], l2_bytes(world.device)
    num_rows, width = max(1, (l2 // 4 if case["table"] == "L2" else 16 * l2) // row_bytes), row_bytes // 4
    table, num_indices = torch.randn(num_rows, width, device=device), 1 << (12 if toy else 22)
    index = torch.randint(num_rows, (num_indices,), dtype=torch.int32, device=device)
    out = torch.empty(num_indices, width, device=device)
    tried = []
    for elements, num_warps in _TILES[: 1 if toy else None]:
        sums, rows_of_sum = gather_sum(table, index, elements, num_warps)
        if not torch.allclose(sums[0].double(), table[index[:rows_of_sum].long()].double().sum(0), atol=1e-2):
            raise ArithmeticError(f"the gathered rows of {row_bytes} bytes have another sum")
        run = partial(gather_sum, table, elements=elements, num_warps=num_warps)
        about = rate("gb_per_s", len(sums) * rows_of_sum * row_bytes)
        tried.append(time_on_device(Method("gather", KERNEL, run, case=case, about=about), [index], world))
    best = max(tried, key=lambda measured: measured.details["gb_per_s"])
    select, about = partial(torch.index_select, table, 0, out=out), rate("index_select_gb_per_s", 4 * out.numel())
    best.details.update(time_on_device(Method("index_select", KERNEL, select, about=about), [index], world).details)
    return best


def gemm(world: World, case: Case, toy: bool) -> Measurement:
    """TFLOP/s of a square product through torch."""
    (level, dtype), size = PRECISIONS[case["precision"]], 64 if toy else 4096 if case["precision"] == "fp32" else 8192
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(level)
    try:
        a, b, out = (torch.randn(size, size, device=world.device).to(dtype) for _ in range(3))
        run, about = partial(torch.mm, mat2=b, out=out), rate("tflop_per_s", 2 * size**3 / 1e3)
        return time_on_device(Method("gemm", KERNEL, run, case=case, about=about), [a], world)
    finally:
        torch.set_float32_matmul_precision(before)


def gather_rate(record: str | None, row_bytes: float, in_l2: bool) -> float | None:
    """GB/s of gathered rows of ``row_bytes``, between those of a ``record.json`` of op=rates in proportion; None: not
    measured."""
    rows = json.loads(Path(record).read_text())["measurements"] if record else []
    of_place = [row for row in rows if row["method"] == "gather" and (row["case"]["table"] == "L2") == in_l2]
    points = sorted((row["case"]["row_bytes"], row["details"]["gb_per_s"]) for row in of_place)
    return float(np.interp(row_bytes, *np.array(points, float).T)) if points else None


def is_toy(device: torch.device) -> bool:
    """Whether this is a run on a CPU; Triton's kernels are then interpreted, if TRITON_INTERPRET=1 asks for it."""
    gpu.INTERPRETED = device.type == "cpu" and gpu.interpreting()
    return device.type == "cpu"


def l2_bytes(device: torch.device) -> int:
    """Bytes of the L2 cache of a GPU."""
    return torch.cuda.get_device_properties(device).L2_cache_size if device.type == "cuda" else _CPU_L2_BYTES


def num_inputs(bytes_of_one: int, l2: int) -> int:
    """How many inputs take turns: by the time that one is read again, the L2 has seen several times its size."""
    return min(_MAX_INPUTS, max(2, -(-L2_MULTIPLE * l2 // bytes_of_one) + 1))


def rotated(num_rows: int, width: int, device: torch.device, seed: int = 0) -> list[Tensor]:
    """Random (num_rows, width) float32 inputs, ``num_inputs`` of them, laid out as in training."""
    generator, like = torch.Generator(device).manual_seed(seed + width), torch.empty(0, device=device)
    row_bytes = empty_aligned(1, width, like).stride(0) * like.itemsize
    count = num_inputs(num_rows * row_bytes, l2_bytes(device))
    return [empty_aligned(num_rows, width, like).normal_(generator=generator) for _ in range(count)]


def time_on_device(method: Method, inputs: Sequence[Any], world: World, seconds: float = 0.5) -> Measurement:
    """The times of a method, whose ``run`` takes one input after the other.

    Args:
        seconds: duration of the timed runs; there are 5 rounds, each of 1 run to 8.
    """
    device, run, turns = world.device, method.run, itertools.cycle(inputs)
    at_once, rounds = 1, _CPU_ROUNDS
    if device.type == "cuda":
        for x in inputs[:2]:  # the first call compiles
            run(x)
        once_s = wall_ms(lambda: run(inputs[-1]), device) / 1e3
        at_once, rounds = num_repeats(seconds / _ROUNDS, once_s, 1, _MOST_RUNS_OF_ROUND), _ROUNDS

    def step() -> None:
        run(next(turns))

    ((measured,), _) = measure([replace(method, run=timed(step, device, at_once))], world, rounds, 0, 10 * seconds)
    return measured


def compile_ahead(launches: Iterable[Callable[[], object]], device: torch.device) -> None:
    """Compile on all cores what will be launched; what the compiler refuses is refused again where it is launched."""

    def launch() -> None:
        with rehearsal(len(os.sched_getaffinity(0))):
            for once in launches:
                once()

    if device.type == "cuda":
        attempt(launch)
