"""The kernels that are timed, their errors, and the exact products that they are compared with.

Timing takes several inputs in turn, together larger than the cache, so that the cache holds none of them.
"""

import pytest
import torch

from fullgnn.bench.gpu import products
from fullgnn.bench.gpu.products import CONTESTANTS, FIRST, error_of, exact_rows, rotated, sample_rows, time_on_device
from fullgnn.bench.harness import Method
from fullgnn.distributed import world_of_one
from fullgnn.kernels.spmm import TorchCSR
from tests.gpu.blocks import DEVICE, corner, exact, ragged

CPU = torch.device("cpu")


def test_errors_are_over_the_sum_of_magnitudes() -> None:
    """The sum 1e6 - 1e6 + 1 is 1, and an error of 1 is 5e-7 of the sum of the magnitudes."""
    total, magnitude = torch.tensor([[1.0]], dtype=torch.float64), torch.tensor([[2e6 + 1]], dtype=torch.float64)
    assert error_of(torch.tensor([[2.0]]), total, magnitude) == pytest.approx(5e-7, rel=1e-3)
    nothing = torch.zeros(1, 1, dtype=torch.float64)
    assert error_of(nothing.float(), nothing, nothing) == 0 and error_of(total.float(), nothing, nothing) == torch.inf
    assert not error_of(torch.tensor([[torch.nan]]), total, magnitude) <= 1.0


@pytest.mark.parametrize("weighted", [False, True])
def test_the_exact_product_is_the_dense_one(weighted: bool) -> None:
    block = ragged(weighted)
    dense = TorchCSR().prepare(block, torch.float64).to_dense()
    stored = (dense != 0).sum(1)
    assert (stored == 0).sum() >= 6 and stored.max() == block.num_cols and stored[-1] == 0
    x = torch.randn(block.num_cols, 130, dtype=torch.float64, device=DEVICE)
    product, magnitude = exact(block, x)
    torch.testing.assert_close(product, dense @ x)
    torch.testing.assert_close(magnitude, dense.abs() @ x.abs())
    if not weighted:
        rows = sample_rows(block)
        torch.testing.assert_close(exact_rows(block, x, rows), product[rows])


def test_a_corner_is_where_a_matrix_ends() -> None:
    block = corner(500, 300, 64, 64)
    assert block.nnz == 64 * 64 and block.indptr[-65] == 0 and block.indices.max() == 299


def test_contestants_are_named_as_the_kernels_name_themselves(triton_on_cpu: None) -> None:
    for name, contestant in CONTESTANTS.items():
        assert contestant.name == name == contestant.make().name_for(DEVICE, torch.float32)


def test_only_the_kernel_that_rounds_may_be_off_by_more() -> None:
    assert all(contestant.tolerance == 1e-6 for contestant in FIRST)
    assert 2**-8 < CONTESTANTS["csr bf16"].tolerance < 2**-7


def test_a_kernel_that_cannot_serve_says_so() -> None:
    assert CONTESTANTS["torch"].missing(CPU) is None
    assert "GPU" in CONTESTANTS["csr"].missing(CPU)


def test_inputs_exceed_the_cache() -> None:
    l2 = 60 << 20
    for num_bytes in (1000, 7 << 20, 45 << 20, 125 << 20, 10 << 30):
        count = products.num_inputs(num_bytes, l2)
        others = (count - 1) * num_bytes  # bytes that are read between two uses of one input
        assert count >= 2 and (others >= products.L2_MULTIPLE * l2 or count == 64)
    assert products.num_inputs(10 << 30, l2) == 2


def test_rotated_inputs_differ_and_lie_as_in_training() -> None:
    inputs = rotated(100, 41, CPU)
    assert len(inputs) == products.num_inputs(100 * 48 * 4, products.l2_bytes(CPU))
    assert len({x.data_ptr() for x in inputs}) == len(inputs)
    assert all(x.shape == (100, 41) and x.stride() == (48, 1) for x in inputs)
    assert not torch.equal(inputs[0], inputs[1])
    assert torch.equal(inputs[0], rotated(100, 41, CPU)[0])  # the seed is fixed


def test_every_input_is_used_in_turn() -> None:
    seen = []
    with world_of_one(CPU) as world:
        measured = time_on_device(Method("append", "kernel", seen.append, case={"width": 1}), [0, 1, 2], world)
    assert seen == [0, 1] and measured.times.runs == 2
    assert measured.method.case == {"width": 1} and measured.values == []


@pytest.mark.gpu
def test_what_the_gpu_does_is_timed() -> None:
    device = torch.device("cuda")
    small, large = ([torch.ones(size, device=device)] * 2 for size in (1 << 20, 1 << 28))
    method = Method("neg", "kernel", torch.neg)
    with world_of_one(device) as world:
        quick, slow = (time_on_device(method, inputs, world).median_ms for inputs in (small, large))
    assert 1e-4 < quick < 0.2 * slow
