import pytest
import torch

from fullgnn.lines import as_rows, empty_lines, line_stride


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
    assert {width: line_stride(torch.device(device), width, dtype) for width in strides} == strides


def test_empty_lines() -> None:
    rows = empty_lines(5, 41, like=torch.empty(0, dtype=torch.float64))
    assert (rows.shape, rows.stride(), rows.dtype) == ((5, 41), (48, 1), torch.float64)


def test_only_what_has_no_rows_is_copied() -> None:
    x = torch.randn(6, 8)
    for rows in (x, x[:, 2:5], x[::2], x[:, :1], x.t()[:, :1], x[:, :0]):
        assert as_rows(rows) is rows
    across, same = x.t(), x[:1].expand(6, 8)
    assert as_rows(across).stride() == (6, 1) and torch.equal(as_rows(across), across)
    assert as_rows(same) is same and as_rows(x[:, :1].expand(6, 8)).stride() == (8, 1)
