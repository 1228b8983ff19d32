"""The error of a sum does not grow with the number of its addends: at most 1e-6 of their magnitudes at 4 million.

Equal addends are the worst: the rounding errors of one running sum all point the same way.
"""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from fullgnn.kernels.spmm import LocalCSR, TritonCSR
from fullgnn.kernels.spmm.reading import CHAIN, split_columns
from fullgnn.kernels.spmm.triton_csr import Items, RowPlan, num_lanes
from fullgnn.kernels.support import tuning
from fullgnn.kernels.support.tuning import Tuning, tuning_of
from tests.triton_device import DEVICE, needs_triton

pytestmark = needs_triton

DEGREES = (13_161, 1_000_000, 4_194_304)


@pytest.fixture(autouse=True)
def triton(triton_on_cpu: None) -> Iterator[None]:
    yield
    tuning.use(None)


def star(degree: int, values: Tensor | None = None) -> LocalCSR:
    """One row whose edges all read row 0 of X."""
    indptr, indices = torch.tensor([0, degree], dtype=torch.int32), torch.zeros(degree, dtype=torch.int32)
    values = None if values is None else values.to(DEVICE)
    return LocalCSR(indptr.to(DEVICE), indices.to(DEVICE), values, 1, 1)


def addends(width: int, dtype: torch.dtype = torch.float32) -> Tensor:
    x = torch.rand(1, width, dtype=dtype, generator=torch.Generator().manual_seed(0)) + 0.05
    x[0, 0] = 0.1
    return x


def relative_error(adj: LocalCSR, x: Tensor, before: float | None = None) -> float:
    """The error of the product, or of ``before`` plus the product, relative to the sum of the addends' magnitudes."""
    kernel, out = TritonCSR(), torch.full((1, x.shape[1]), before or 0.0, dtype=x.dtype, device=DEVICE)
    kernel.spmm(kernel.prepare(adj, x.dtype), x.to(DEVICE), out, accumulate=before is not None)
    weight = adj.nnz if adj.values is None else float(adj.values.double().sum())
    expected = x.double() * weight + (before or 0.0)
    return float(((out.cpu().double() - expected) / expected).abs().max())


@pytest.mark.parametrize("width", [8, 128])
def test_a_row_of_equal_addends(width: int) -> None:
    """A GPU tests all ``DEGREES``; the interpreter tests a row of 2,000."""
    for degree in DEGREES if DEVICE.type == "cuda" else [2000]:
        assert relative_error(star(degree), addends(width)) <= 1e-6


def test_weights_double_precision_and_what_is_there_before() -> None:
    weights = torch.full((1500,), 0.3)
    assert relative_error(star(1500, weights), addends(8)) <= 1e-6
    assert relative_error(star(1500, weights), addends(8, torch.float64)) <= 1e-15
    assert relative_error(star(1500), addends(8), before=1e5) <= 1e-7, "the output is added once"


def added(values: np.ndarray, axis: int) -> np.ndarray:
    """The running sum along an axis, in float32."""
    return np.add.accumulate(values, axis=axis, dtype=np.float32).take(-1, axis=axis)


def model(levels: list[tuple[np.ndarray, np.ndarray]], lanes: int, x: np.ndarray) -> np.ndarray:
    """(width,) sum of a star in the kernel's order; ``levels`` has begins and ends, and its last entry one stretch."""
    values = x[None, :]  # those of an edge or a part; all edges are the same
    for begin, end in levels:
        sums = []
        for size in np.unique(end - begin):  # equal stretches of equal edges: one of each size stands for all
            where = np.flatnonzero(end - begin == size)
            place = np.minimum(begin[where, None] + np.arange(size), len(values) - 1)
            representative = place[:1] if len(values) == 1 else place
            of_stretches = _stretches(values[representative], lanes)
            sums.append((where, np.broadcast_to(of_stretches, (len(where), x.shape[0]))))
        values = np.empty((len(begin), x.shape[0]), np.float32)
        for where, of_stretches in sums:
            values[where] = of_stretches
    return values[0]


def _stretches(values: np.ndarray, lanes: int) -> np.ndarray:
    """(n, size, width) summed over size: every lane adds every ``lanes``-th, then lanes are added in two steps."""
    number, size, width = values.shape
    steps = -(-size // lanes)
    assert steps <= CHAIN, "a lane adds too many numbers one after the other"
    padded = np.zeros((number, steps * lanes, width), np.float32)
    padded[:, :size] = values
    sums = added(padded.reshape(number, steps, lanes, width), 1)
    return added(added(sums.reshape(number, -1, min(lanes, CHAIN), width), 1), 1)


def levels_of(items: Items) -> tuple[np.ndarray, np.ndarray]:
    """Begins and ends by target: the parts of a level in the order in which the next level reads them."""
    order = items.target.argsort()
    return items.begin[order].numpy(), items.end[order].numpy()


@pytest.mark.sample(7)
@pytest.mark.parametrize("tree", [{}, {"csr": {"elements": 1024}}], ids=["", "tuned"])
@pytest.mark.parametrize("degree", DEGREES)
@pytest.mark.parametrize("width", [8, 41, 128])
def test_the_order_of_a_sum_of_millions(width: int, degree: int, tree: dict) -> None:
    """A model that adds in the order of the kernel has an error of at most 1e-6, for any tuning."""
    tuning.use(tuning_of(tree))
    used: Tuning = tuning.tuning_for(torch.device("cpu"))
    x = addends(2000).numpy()[0]
    expected = degree * x.astype(np.float64)
    adj = star(degree)
    adj = LocalCSR(adj.indptr.cpu(), adj.indices.cpu(), None, 1, 1)
    rows, lanes = RowPlan(adj, torch.float32), num_lanes(used.csr.at(width), split_columns(width)[0].total)
    assert not rows.bins
    total = model([levels_of(level) for level in rows.heavy], lanes, x)
    assert (np.abs(total - expected) <= 1e-6 * expected).all()
