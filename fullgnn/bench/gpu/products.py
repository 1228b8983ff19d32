"""The products (A + I) X of a look-alike on the device: every kernel at every width, timed against its error.

An error is that of an element over the sum of the magnitudes of its addends; the exact product, in float64, is computed
for some rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from fullgnn.bench.config import BenchConfig
from fullgnn.bench.gpu.made_graph import densities, make_graph
from fullgnn.bench.gpu.rates import compile_ahead, gather_rate, is_toy, l2_bytes, rotated, time_on_device
from fullgnn.bench.harness import Cases, Measurement, Outcome, Results, attempt, rate
from fullgnn.distributed import World
from fullgnn.errors import FullGNNError, message_of
from fullgnn.kernels.spmm import Kernel, LocalCSR, Packed, Tile32, TorchCSR, TritonCSR
from fullgnn.kernels.support.aligned import SECTOR_BYTES
from fullgnn.telemetry.timing import wall_ms

FLOAT32 = 1e-6
"""Error of a sum at float32 quality, over the sum of the magnitudes of its addends."""

_SECONDS = 0.25  # of the runs of a product
_NUM_SAMPLES = 1024


@dataclass(frozen=True)
class Contestant:
    """One kernel in one way of multiplying."""

    name: str  # as ``Kernel.name_for`` gives it
    make: Callable[[], Kernel]
    rounding: float = 0.0  # the largest relative error of a number as it is multiplied

    @property
    def tolerance(self) -> float:
        """Largest error allowed of an element of the product, over the sum of the magnitudes of its addends."""
        return FLOAT32 + self.rounding

    def missing(self, device: torch.device) -> str | None:
        """Why this kernel does not multiply on ``device``; None where it does."""
        indptr, indices = (torch.tensor(ids, dtype=torch.int32, device=device) for ids in ([0, 1], [0]))
        try:
            self.make().prepare(LocalCSR(indptr, indices, None, 1, 1), torch.float32)
        except FullGNNError as error:
            return message_of(error)
        return None


BASELINE, CSR = Contestant("torch", TorchCSR), Contestant("csr", TritonCSR)
TILE32, PACKED = Contestant("tile32", Tile32), Contestant("packed", Packed)

FIRST = [BASELINE, CSR, TILE32, PACKED]
"""Those of float32 quality: timed at every width, before the other one."""

ROUNDED = Contestant("csr bf16", partial(TritonCSR, "bf16"), 2.0**-8)
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

    made = make_graph(cfg, cases.budget, device, prepare_all)
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
        run, case, num_bytes = partial(self._multiply, out=out), {"width": width}, width * 4
        about = rate("gathered_gb_per_s", block.nnz * num_bytes)
        times = {
            layout: time_on_device(self._name, run, xs, world, seconds, case, about) for layout, xs in layouts.items()
        }
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
