"""The products (A + I) X of a look-alike on the device: every kernel at every width, timed against its error."""

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from fullgnn.bench.cases import Cases
from fullgnn.bench.config import BenchConfig
from fullgnn.bench.exact import error_of, exact_rows, sample_rows
from fullgnn.bench.gpu.contestants import BASELINE, FIRST, ROUNDED, Contestant
from fullgnn.bench.gpu.made_graph import densities, make_graph
from fullgnn.bench.gpu.rates import gather_rates, rate_at
from fullgnn.bench.gpu.timing import compile_ahead, is_toy, l2_bytes, rotated, time_on_device
from fullgnn.bench.harness import Measurement, Outcome, Results
from fullgnn.distributed import World
from fullgnn.kernels.spmm import Kernel, LocalCSR
from fullgnn.kernels.support.aligned import SECTOR_BYTES
from fullgnn.telemetry.timing import wall_ms

_SECONDS, _TOY_S = 0.25, 0.01


def run(cfg: BenchConfig, world: World) -> Results:
    """The widths of the graph's model first, then the product of the shuffled graph, the other widths, and the kernel
    that is not exact."""
    device, toy = world.device, is_toy(world.device)
    cases, rates = Cases(cfg.limit_s, device), list(gather_rates(cfg.rates))
    able = [contestant for contestant in FIRST if contestant.missing(device) is None]

    def prepare_all(block: LocalCSR) -> None:
        for contestant in able:
            contestant.make().prepare(block, torch.float32)

    made = make_graph(cfg, cases.budget, device, prepare_all)
    shuffled = made.graph.csr()
    yield Outcome(problem=made.facts | {"tile_density_shuffled": densities(shuffled)})
    first = [width for width in cfg.widths if width in (made.shape.num_classes, made.shape.hidden)] or cfg.widths[:1]
    products, of_shuffled = (Products(block, world, rates) for block in (made.block, shuffled))
    del made, shuffled
    rounded = [] if toy or ROUNDED.missing(device) is not None else [ROUNDED]
    base: dict[int, Measurement] = {}
    for suffix, contestants, widths in (
        ("", able, first),
        (", shuffled graph", [BASELINE], first[:1]),
        ("", able, [width for width in cfg.widths if width not in first]),
        ("", rounded, first),
    ):
        of_graph = of_shuffled if suffix else products
        for width in widths:
            compile_ahead([partial(of_graph.launch, contestant, width) for contestant in contestants], device)
            for contestant in contestants:
                once = partial(of_graph.time, contestant, width, _TOY_S if toy else _SECONDS)
                measured, missing = cases.run(f"{contestant.name}{suffix}", once, {"width": width}, 1.5)
                if measured:
                    measured.method = replace(measured.method, name=f"{contestant.name}{suffix}")
                    measured.compare_with(base.setdefault(width, measured))
                yield Outcome([measured] if measured else [], missing)
        of_shuffled.release()


class Products:
    """(A + I) X of one graph. Prepared kernels and inputs are kept until ``release``.

    Args:
        block: the whole graph.
        rates: of gathered rows, see ``rates.rate_at``.
    """

    def __init__(self, block: LocalCSR, world: World, rates: list[tuple[bool, float, float]]):
        self._block, self._world, self._rates, self._device = block, world, rates, world.device
        self._setup: dict[str, dict[str, float]] = {}  # by the kernel: its seconds, and what it holds beside the CSR
        self.release()

    @property
    def num_rows(self) -> int:
        return self._block.num_rows

    def time(self, contestant: Contestant, width: int, seconds: float, keep: bool = True) -> Measurement:
        """The times, error and rates of one product.

        Args:
            keep: the prepared kernel for the next call; otherwise the kernel is prepared for this call alone, as it
                must be where the constants of kernels have changed.
        """
        multiply, inputs = self._multiply(contestant, width, keep), self._inputs
        out = torch.full((self._block.num_rows, width), torch.nan, device=self._device)
        multiply(inputs[0], out)
        error = error_of(out[self._rows], self._expected, self._magnitude)
        layouts = {"lines": inputs}
        if (
            contestant == BASELINE and not inputs[0].is_contiguous()
        ):  # as its users have it; the better of the two counts
            layouts["contiguous"] = [x.contiguous() for x in inputs]
        case, run = {"width": width}, partial(multiply, out=out)
        times = {
            layout: time_on_device(contestant.name, run, xs, self._world, seconds, case)
            for layout, xs in layouts.items()
        }
        layout = min(times, key=lambda layout: times[layout].median_ms)
        best = times[layout]
        gathered = self._block.nnz * width * 4 / best.median_ms / 1e6
        row_bytes = inputs[0].stride(0) * 4
        resident = self._block.num_cols * row_bytes <= l2_bytes(self._device)
        sectors = -(-width * 4 // SECTOR_BYTES) * SECTOR_BYTES  # what a row of X is read as
        rate = rate_at(self._rates, sectors, resident)
        best.details.update(
            {
                "error": error,
                "correct": error <= contestant.tolerance,
                "gathered_gb_per_s": gathered,
                "of_gather_rate_per_s": None if rate is None else gathered * sectors / (width * 4) / rate,
                "x_fits_l2": resident,
                "rows_of_x": layout,
                "row_bytes": row_bytes,
                "num_inputs": len(inputs),
                **self._setup.get(contestant.name, {}),
            }
        )
        return best

    def launch(self, contestant: Contestant, width: int, keep: bool = True) -> None:
        """Multiply once."""
        multiply = self._multiply(contestant, width, keep)
        multiply(self._inputs[0], torch.empty(self._block.num_rows, width, device=self._device))

    def release(self) -> None:
        """Free the inputs and the prepared kernels."""
        self._prepared: dict[str, tuple[Kernel, Any]] = {}
        self._width, self._inputs = 0, list[Tensor]()
        self._rows = self._expected = self._magnitude = torch.empty(0)

    def _multiply(self, contestant: Contestant, width: int, keep: bool) -> Any:
        """(x, out) -> the product, written to ``out``, by a kernel that is prepared for inputs of ``width``."""
        self._take_width(width)
        if not keep or contestant.name not in self._prepared:
            kernel, blocks = contestant.make(), list[Any]()
            ms = wall_ms(lambda: blocks.append(kernel.prepare(self._block, torch.float32)), self._device)
            if not keep:
                return partial(kernel.spmm, blocks[0], accumulate=False)
            own = {self._block.indptr.data_ptr(), self._block.indices.data_ptr()}
            held = sum(tensor.nbytes for tensor in kernel.tensors(blocks[0]) if tensor.data_ptr() not in own)
            self._prepared[contestant.name] = kernel, blocks[0]
            self._setup[contestant.name] = {"setup_s": ms / 1e3, "beside_mb": held / 1e6}
        kernel, prepared = self._prepared[contestant.name]
        return partial(kernel.spmm, prepared, accumulate=False)

    def _take_width(self, width: int) -> None:
        """Inputs of ``width``, and the exact product of the first on some rows, the longest among them."""
        if self._width != width:
            self._inputs = []
            self._inputs = rotated(self._block.num_cols, width, self._device)
            self._rows = sample_rows(self._block)
            self._expected = exact_rows(self._block, self._inputs[0], self._rows)
            self._magnitude = exact_rows(self._block, self._inputs[0].abs(), self._rows)
            self._width = width
