"""X^T G, masks and column sums in Triton against float64. Numbers are small integers where sums must be exact."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fullgnn.distributed import product_precision
from fullgnn.kernels.dense import dense
from fullgnn.kernels.dense.dense import activation_gradients, linear_gradients, weight_gradient
from fullgnn.kernels.support import gpu, tuning
from fullgnn.kernels.support.aligned import empty_aligned
from fullgnn.kernels.support.tuning import DenseTuning
from fullgnn.nn import cross_entropy
from tests.kernels.dense.dense import integers, within
from tests.triton_device import DEVICE, needs_triton

pytestmark = needs_triton

SHAPES = [(1, 1), (3, 8), (17, 47), (129, 17)]
OF_MODELS = [(602, 128), (128, 41), (100, 64), (64, 47), (8, 128), (128, 112)]
WIDE = [(1, 300), (700, 1), (130, 257)]  # where X is wide, G is masked first


@pytest.fixture(autouse=True)
def poisoned(triton_on_cpu: None) -> Iterator[None]:
    """Fill memory that is not initialised with NaNs, and divide few rows into many steps and ranges."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert torch.empty(8, device=DEVICE).isnan().all()
    tuning.use(tuning.tuning_of({"dense": {"gradient_rows": 32, "gradient_steps": 2, "mask_tiles": 2, "sum_parts": 2}}))
    yield
    tuning.use(None)
    torch.use_deterministic_algorithms(False)


def whole(*shape: int, seed: int) -> Tensor:
    return integers(*shape, dtype=torch.float32, seed=seed).to(DEVICE)


def padded(matrix: Tensor) -> Tensor:
    """The same rows, each at the start of a line and followed by NaNs."""
    rows = empty_aligned(*matrix.shape, like=matrix)
    return rows.copy_(matrix)


def masked_by(g: Tensor, output: Tensor | None) -> Tensor:
    g = g.cpu().double()
    return g if output is None else torch.where(output.cpu() > 0, 2 * g, 0)


@pytest.mark.sample(5)
@pytest.mark.parametrize(("f", "h"), [*SHAPES, *OF_MODELS, *WIDE])
def test_gradients(f: int, h: int) -> None:
    for number, n in enumerate((1, 37, 150) if (f, h) in SHAPES else (70,)):
        x, g, y = (whole(n, width, seed=seed) for seed, width in enumerate((f, h, h)))
        for output, keep in ((None, True), (y, False), (y, True)) if n > 1 else ((y, True),):
            exact = masked_by(g, output)
            if number % 2:
                arguments = [within(x, number), within(g, number), None if output is None else within(y, 2 * number)]
            else:
                arguments = [padded(x), padded(g), None if output is None else padded(y)]
            gradient, sums, masked = linear_gradients(*arguments, 2.0, keep_masked=keep)
            assert torch.equal(gradient.cpu().double(), x.cpu().double().t() @ exact), (n, keep)
            assert torch.equal(sums.cpu().double(), exact.sum(0)), (n, keep)
            assert (masked is not None) == keep
            assert masked is None or torch.equal(masked.cpu().double(), exact)
        assert torch.equal(weight_gradient(padded(x), g).cpu().double(), x.cpu().double().t() @ g.cpu().double())


def test_any_stride() -> None:
    """The matrices are stored by columns, or have one repeated row, or a single column."""
    x, g = whole(70, 6, seed=0), whole(70, 5, seed=1)
    exact = x.cpu().double().t() @ g.cpu().double()
    assert torch.equal(weight_gradient(x.t().contiguous().t(), g.t().contiguous().t()).cpu().double(), exact)
    across = g[0].expand(70, 5)
    exact = x.cpu().double().t() @ across.cpu().double()
    assert torch.equal(linear_gradients(x, across, None, 1.0, keep_masked=False)[0].cpu().double(), exact)
    column = g[:, 2:3]
    exact = x.cpu().double().t() @ column.cpu().double()
    assert torch.equal(weight_gradient(x, column).cpu().double(), exact)


@pytest.mark.parametrize("shape", [(0, 5, 3), (5, 0, 3), (5, 3, 0)])
def test_nothing_to_multiply(shape: tuple[int, int, int]) -> None:
    n, f, h = shape
    x, g = whole(n, f, seed=0), whole(n, h, seed=1)
    for output in (None, g):
        gradient, sums, masked = linear_gradients(x, g, output, 2.0, keep_masked=True)
        assert torch.equal(gradient.cpu(), torch.zeros(f, h)) and masked is not None
        assert torch.equal(sums.cpu().double(), masked_by(g, output).sum(0)) and masked.shape == g.shape


def test_who_multiplies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our kernel multiplies float32 of any size; torch multiplies other dtypes, which our kernel masks."""
    from fullgnn.kernels.dense import _gradient_gpu

    called, path = [], _gradient_gpu.linear_gradients_gpu
    monkeypatch.setattr(dense, "MIN_WORK", 1 << 62)
    monkeypatch.setattr(_gradient_gpu, "linear_gradients_gpu", lambda *a, **k: called.append(1) or path(*a, **k))
    for dtype, ours in ((torch.float32, True), (torch.float64, False), (torch.bfloat16, False)):
        del called[:]
        x, g, y = (whole(20, 4, seed=seed).to(dtype) for seed in range(3))
        gradient, sums, _ = linear_gradients(x, g, y, 2.0, keep_masked=False)
        exact = masked_by(g, y)
        assert torch.equal(gradient.cpu().double(), x.cpu().double().t() @ exact), dtype
        assert torch.equal(sums.cpu().double(), exact.sum(0)) and bool(called) == ours


def test_a_nan_shows() -> None:
    """A NaN in X or G shows in the gradient; where the output is NaN, G passes."""
    for place in range(3):
        x, g, y = (torch.ones(40, 3, device=DEVICE) for _ in range(3))
        (x, g, y)[place][7, 1] = torch.nan
        gradient, sums, _ = linear_gradients(x, g, y, 1.0, keep_masked=False)
        nan = torch.zeros(3, 3, dtype=torch.bool)
        nan[1, :] = place == 0
        nan[:, 1] |= place == 1
        assert torch.equal(gradient.cpu().isnan(), nan) and sums.isnan().any() == (place == 1)
        assert (gradient.cpu()[~nan] == 40).all()


def test_of_float32_quality() -> None:
    generator = torch.Generator().manual_seed(0)
    x, g, y = (torch.randn(700, width, generator=generator).to(DEVICE) for width in (50, 47, 47))
    gradient, sums, _ = linear_gradients(x, g, y, 1 / 0.7, keep_masked=False)
    exact = torch.where(y.cpu() > 0, g.cpu().double() / 0.7, 0)
    bound = 2**-20 * (x.cpu().double().abs().t() @ exact.abs())
    assert ((gradient.cpu().double() - x.cpu().double().t() @ exact).abs() <= bound).all()
    assert ((sums.cpu().double() - exact.sum(0)).abs() <= 2**-20 * exact.abs().sum(0)).all()


def drift(total: Tensor, addend: Tensor, count: int) -> float:
    """How far sums of ``count`` equal addends are off, as a fraction of the sum of their magnitudes."""
    exact = count * addend.cpu().double()
    return float(((total.cpu().double() - exact) / exact).abs().max())


def test_sums_of_equal_addends_do_not_drift() -> None:
    """Each of 96 columns sums one addend. With the default constants, the float32 chains are as long as they get.

    Beyond one range of rows, more rows mean more parts, which are added in float64, so that the number of parts does
    not matter: the next test has more parts than 4,194,304 rows have.
    """
    tuning.use(None)
    n = 3 * DenseTuning().gradient_rows * DenseTuning().gradient_steps
    assert n == 2304
    addend = (1 + torch.rand(96, generator=torch.Generator().manual_seed(0))).to(DEVICE)
    tuning.use(tuning.tuning_of({"dense": {"gradient_programs": 1}}))
    x, g = torch.ones(n, 1, device=DEVICE), addend.expand(n, 96)
    gradient, sums, _ = linear_gradients(x, g, g, 1.0, keep_masked=False)
    assert drift(gradient[0], addend, n) <= 1e-6 and drift(sums, addend, n) <= 1e-6
    tuning.use(None)
    sums = activation_gradients(g, g, 1.0)[1]
    assert drift(sums, addend, n) <= 1e-6


@pytest.mark.parametrize("num_parts", [1, 5, 6000])
def test_parts_are_added_exactly_enough(num_parts: int) -> None:
    """For any number of parts, the sum is the float32 number nearest to the exact sum, or a neighbour of it."""
    from fullgnn.kernels.dense._gradient_gpu import add_parts

    tuning.use(None)
    parts = 1 + torch.rand(num_parts, 3, 8, generator=torch.Generator().manual_seed(0))
    parts[:, 1] = 1 + torch.rand(8, generator=torch.Generator().manual_seed(1))
    parts[:, :, 7] = torch.nan  # a column beyond the 7 that are asked for
    total = add_parts(parts.to(DEVICE), torch.empty(3, 7, device=DEVICE))
    exact = parts.double().sum(0)[:, :7]
    torch.testing.assert_close(total.cpu().double(), exact, rtol=2**-23, atol=0)
    wide = add_parts(parts.to(DEVICE), torch.empty(3, 7, dtype=torch.float64, device=DEVICE))
    torch.testing.assert_close(add_parts(parts.to(DEVICE), wide, accumulate=True).cpu(), 2 * exact, rtol=1e-14, atol=0)


class Allocations(TorchDispatchMode):
    """The bytes of the largest tensor that is allocated."""

    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func.overloadpacket in (torch.ops.aten.new_empty, torch.ops.aten.empty):
            self.largest = max(self.largest, made.nbytes)
        return made


@pytest.mark.parametrize("masks", [False, True])
def test_the_parts_of_many_ranges_fit_into_a_bounded_memory(masks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two kernels take turns: they write and add the parts of a few ranges, and the sum stays in float64."""
    from fullgnn.kernels.dense import _gradient_gpu

    tuning.use(tuning.tuning_of({"dense": {"gradient_rows": 16, "gradient_steps": 1}}))
    n, f, h = 16 * 10 + 5, 6, 9  # 11 ranges, with parts of 7 x 12 numbers
    limit = 5 * 7 * 12 * 4  # so that there are turns of 4, 4 and 3 ranges
    monkeypatch.setattr(_gradient_gpu, "PARTS_BYTES", limit, raising=False)
    x, g, y = (whole(n, width, seed=seed) for seed, width in enumerate((f, h, h)))
    exact = masked_by(g, y if masks else None)
    with Allocations() as allocated:
        gradient, sums, _masked = linear_gradients(x, g, y if masks else None, 2.0, keep_masked=False)
    assert torch.equal(gradient.cpu().double(), x.cpu().double().t() @ exact)
    assert torch.equal(sums.cpu().double(), exact.sum(0)) and gradient.dtype == sums.dtype == torch.float32
    assert 0 < allocated.largest <= limit
    if masks:
        assert torch.equal(linear_gradients(x, g, y, 2.0, keep_masked=True)[2].cpu().double(), exact)
    addend = (1 + torch.rand(h, generator=torch.Generator().manual_seed(0))).to(DEVICE)
    gradient = linear_gradients(torch.ones(n, f, device=DEVICE), addend.expand(n, h), None, 1.0, keep_masked=False)[0]
    assert drift(gradient[0], addend, n) <= 1e-6


def test_the_number_of_turns_is_the_least() -> None:
    from fullgnn.kernels.dense._gradient_gpu import PARTS_BYTES, ranges_at_once

    for num_ranges, part_bytes in ((1, 1), (18_100, 129 * 128 * 4), (7, 2 * PARTS_BYTES), (3, PARTS_BYTES)):
        most, ranges = max(1, PARTS_BYTES // part_bytes), ranges_at_once(num_ranges, part_bytes)
        assert ranges <= most and -(-num_ranges // ranges) == -(-num_ranges // most)


def test_the_longest_sums_do_not_grow() -> None:
    """The number of steps that a program adds, and of rows in a step, has a bound for every shape."""
    from fullgnn.kernels.dense._gradient_gpu import split_for

    for n in (1, 40, 10**5, 10**6, 4 * 10**6, 10**9):
        for f, h, streams in ((602, 128, 2), (128, 41, 1), (1, 1, 3), (128, 128, 3), (5000, 5000, 1)):
            split = split_for(n, f, h, streams, DenseTuning())
            assert split.rows <= 32 and split.range_rows <= 24 * split.rows and split.range_rows % split.rows == 0
            assert (split.num_ranges - 1) * split.range_rows < n <= split.num_ranges * split.range_rows
            assert split.input_tiles * split.inputs >= f and split.column_tiles * split.columns >= h
            assert split.num_ranges * split.input_tiles * split.column_tiles < 2**31


def test_rows_that_can_be_read_past_their_end() -> None:
    """Rows are read 16 bytes at a time where they are padded and the memory holds the padding of the last row."""
    frame = torch.zeros(10 * 48)
    assert frame.data_ptr() % 16 == 0
    rows = frame.view(10, 48)
    assert gpu.row_unit(rows[:, :41]) == gpu.row_unit(rows) == gpu.row_unit(rows, rows[:, :41]) == 4
    assert gpu.row_unit(rows.double()[:, :41]) == 2
    assert gpu.row_unit(rows[:, 1:42]) == 1, "rows do not begin at 16 bytes"
    assert gpu.row_unit(frame[:410].view(10, 41)) == 1, "rows are not padded"
    assert gpu.row_unit(frame[:430].view(10, 43), rows) == 1
    assert gpu.row_unit(torch.as_strided(frame[438 - 9 * 48 :], (10, 41), (44, 1), 0)) == 4
    short = torch.zeros(9 * 44 + 41)
    assert gpu.row_unit(torch.as_strided(short, (10, 41), (44, 1))) == 1, "the memory ends before the padding"
    assert gpu.row_unit(torch.as_strided(short, (9, 41), (44, 1))) == 4
    assert gpu.row_unit(frame[:44].expand(5, 44)) == 4 and gpu.row_unit(frame[:41].expand(5, 41)) == 1
    assert gpu.row_unit(frame[:2].expand(5, 2)) == 1


def test_the_gradient_of_the_loss_lies_in_lines() -> None:
    """The last layer can then read the gradient 16 bytes at a time."""
    _, gradient = cross_entropy(torch.randn(9, 41, device=DEVICE), torch.zeros(9, dtype=torch.int64, device=DEVICE), 1)
    assert gpu.row_unit(gradient) == 4 and gradient.shape == (9, 41)
    assert torch.as_strided(gradient, (9, 44), gradient.stride()).isfinite().all(), "padding is written, too"


@pytest.mark.parametrize(("choice", "expected"), [("float32", "tf32x3"), ("tf32", "tf32")])
def test_factors_have_the_precision_of_the_run(choice: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the products of cuBLAS have it: see ``distributed/mesh.py``."""
    from fullgnn.kernels.dense import _gradient_gpu

    kernel, seen = _gradient_gpu._outer, []

    class Seen:
        def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
            def launch(*args: Any, **options: Any) -> None:
                seen.append(args[-1])
                kernel[grid](*args, **options)

            return launch

    monkeypatch.setattr(_gradient_gpu, "_outer", Seen())
    x = torch.ones(40, 8, device=DEVICE)
    with product_precision(choice):
        gradient, _, _ = _gradient_gpu.linear_gradients_gpu(x, x, None, 1.0, keep_masked=False)
    assert seen == [expected] and gradient.eq(40).all()
