import pytest
import torch

from fullgnn.kernels.support import aligned
from fullgnn.kernels.support.aligned import (
    aligned_stride,
    as_rows,
    empty_aligned,
    is_aligned,
    select_rows,
    to_aligned,
    with_padding,
    zero_padded,
)

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("device", "dtype", "strides"),
    [
        ("cpu", torch.float32, {0: 0, 1: 16, 16: 16, 41: 48, 47: 48, 100: 112, 602: 608}),
        ("cpu", torch.float64, {1: 8, 41: 48, 47: 48, 64: 64}),
        ("cuda", torch.float32, {0: 0, 1: 8, 16: 16, 41: 48, 47: 48, 64: 64, 100: 104, 602: 608}),
        ("cuda", torch.float64, {1: 4, 41: 44, 47: 48, 64: 64}),
        ("cuda", torch.bfloat16, {1: 16, 41: 48, 100: 112, 128: 128}),
    ],
)
def test_rows_begin_a_line_of_a_cpu_or_a_sector_of_a_gpu(
    device: str, dtype: torch.dtype, strides: dict[int, int]
) -> None:
    assert {width: aligned_stride(torch.device(device), width, dtype) for width in strides} == strides


def test_empty_aligned() -> None:
    rows = empty_aligned(5, 41, like=torch.empty(0, dtype=torch.float64))
    assert (rows.shape, rows.stride(), rows.dtype) == ((5, 41), (48, 1), torch.float64)


def test_only_what_has_no_rows_is_copied() -> None:
    x = torch.randn(6, 8)
    for rows in (x, x[:, 2:5], x[::2], x[:, :1], x.t()[:, :1], x[:, :0]):
        assert as_rows(rows) is rows
    across, same = x.t(), x[:1].expand(6, 8)
    assert as_rows(across).stride() == (6, 1) and torch.equal(as_rows(across), across)
    assert as_rows(same) is same and as_rows(x[:, :1].expand(6, 8)).stride() == (8, 1)


@pytest.mark.parametrize("width", [0, 1, 7, 16, 41])
def test_what_is_behind_padded_rows_is_zero(width: int) -> None:
    rows = zero_padded(5, width, like=torch.empty(0)).fill_(1)
    whole = with_padding(rows)
    assert whole.shape == (5, aligned_stride(CPU, width, torch.float32)) and whole.is_contiguous()
    assert whole[:, :width].eq(1).all() and not whole[:, width:].any()


def test_where_rows_begin_lines() -> None:
    """On a CPU a line has 16 numbers in float32."""
    x = torch.zeros(6, 64)
    for matrix in (x, x[:, :41], x[:, 16:57], x[::2], x[:, :1], x[:1].expand(6, 64)):
        assert is_aligned(matrix)
    for matrix in (x[:, 8:49], torch.zeros(6, 41), x.t(), torch.zeros(6, 1)):
        assert not is_aligned(matrix)


@pytest.mark.parametrize("padded", [False, True])
def test_matrices_keep_their_lines_where_the_device_wants_them(monkeypatch, padded: bool) -> None:
    if padded:
        monkeypatch.setattr(aligned, "PADDED_DEVICES", ("cpu",))
    x, index = torch.randn(6, 41), torch.tensor([4, 0, 5])
    there = to_aligned(x, CPU)
    assert torch.equal(there, x) and there.stride(0) == (48 if padded else 41)
    assert to_aligned(there, CPU) is there
    some = select_rows(there, index)
    assert torch.equal(some, x[index]) and some.stride(0) == there.stride(0)
    assert torch.equal(select_rows(there, index[:0]), x[:0])
    if padded:
        assert not with_padding(there)[:, 41:].any() and not with_padding(some)[:, 41:].any()


def test_rows_are_laid_out_in_lines_on_a_gpu_alone() -> None:
    assert aligned.pads_rows(torch.device("cuda", 1)) and not aligned.pads_rows(CPU)
