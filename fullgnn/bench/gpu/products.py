"""The products (A + I) X of a look-alike on the device: every kernel at every width, timed against its error."""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from fullgnn.bench.cases import Cases
from fullgnn.bench.config import BenchConfig
from fullgnn.bench.exact import error_of, exact_rows, sample_rows
from fullgnn.bench.gpu.contestants import BASELINE, FIRST, ROUNDED, Contestant
from fullgnn.bench.gpu.made_graph import densities, make_graph
from fullgnn.bench.gpu.rates import Rate, gather_rates, rate_at
from fullgnn.bench.gpu.timing import compile_ahead, is_toy, l2_bytes, rotated, time_on_device
from fullgnn.bench.harness import Measurement, Outcome, Results, attempt
from fullgnn.distributed import World
from fullgnn.kernels.spmm import LocalCSR
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
    shuffled, block, shape = made.graph.csr(), made.block, made.shape
    yield Outcome(problem=made.facts | {"tile_density_shuffled": densities(shuffled)})
    del made
    first = [width for width in cfg.widths if width in (shape.num_classes, shape.hidden)] or cfg.widths[:1]
    others = [width for width in cfg.widths if width not in first]
    rounded = [] if toy or ROUNDED.missing(device) is not None else [(ROUNDED, block, first)]
    groups = [*((contestant, block, first) for contestant in able), (BASELINE, shuffled, first[:1])]
    base: dict[int, Measurement] = {}

    for contestant, of_graph, widths in [*groups, *((contestant, block, others) for contestant in able), *rounded]:
        name = f"{contestant.name}{', shuffled graph' if of_graph is shuffled else ''}"
        product = cache(partial(LookalikeProduct, contestant, of_graph, device, name))

        def time(width: int, product: Callable[[], LookalikeProduct] = product) -> Measurement:
            measured = product().time(width, world, _TOY_S if toy else _SECONDS, rates)
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

    def time(self, width: int, world: World, seconds: float, rates: Sequence[Rate] = ()) -> Measurement:
        """The times, error and rates of the product.

        Args:
            rates: of gathered rows, see ``rates.rate_at``.
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
        run, case = partial(self._multiply, out=out), {"width": width}
        times = {layout: time_on_device(self._name, run, xs, world, seconds, case) for layout, xs in layouts.items()}
        layout = min(times, key=lambda layout: times[layout].median_ms)
        gathered = block.nnz * width * 4 / times[layout].median_ms / 1e6
        row_bytes = inputs[0].stride(0) * 4
        resident = block.num_cols * row_bytes <= l2_bytes(self._device)
        sectors = -(-width * 4 // SECTOR_BYTES) * SECTOR_BYTES  # what a row of X is read as
        rate = rate_at(rates, sectors, resident)
        times[layout].details.update(
            self._setup,
            error=error,
            correct=error <= self._contestant.tolerance,
            gathered_gb_per_s=gathered,
            of_gather_rate_per_s=None if rate is None else gathered * sectors / (width * 4) / rate,
            x_fits_l2=resident,
            rows_of_x=layout,
            row_bytes=row_bytes,
            num_inputs=len(inputs),
        )
        return times[layout]
