"""How kernels divide columns into pieces and read rows in vectors."""

import pytest
import torch

from fullgnn.kernels.spmm.reading import Columns, Reading, pieces, rounded, split_columns, wide


@pytest.mark.parametrize("smallest", [8, 16])
def test_pieces_cover_a_width_and_hardly_more(smallest: int) -> None:
    for width in range(1, 128):
        widths = pieces(width, smallest)
        used = [piece for piece in widths if piece]
        assert len(widths) == 3 and widths == (*used, *[0] * (3 - len(used)))
        assert all(piece.bit_count() == 1 and piece >= smallest for piece in used)
        assert used == sorted(used, reverse=True)
        assert width <= sum(widths) <= max(width + smallest - 1, 1.15 * width)
    assert pieces(41, 8) == pieces(47, 8) == (32, 16, 0) and pieces(100, 8) == (64, 32, 8)
    assert pieces(100, 16) == (64, 32, 16) and pieces(8, 8) == (8, 0, 0) and pieces(8, 16) == (16, 0, 0)


def test_wide_matrices_take_full_pieces_first() -> None:
    assert split_columns(602) == [Columns(0, 4, (128, 0, 0)), Columns(512, 1, (64, 32, 0))]
    assert split_columns(128) == [Columns(0, 1, (128, 0, 0))] and split_columns(0) == []
    assert [columns.end for columns in split_columns(602)] == [512, 608]
    assert split_columns(100) == [Columns(0, 1, (64, 32, 16))] and split_columns(41) == [Columns(0, 1, (32, 16, 0))]


def test_reading_goes_to_the_end_of_the_stride_where_there_is_memory() -> None:
    plain, padded = torch.empty(10, 41), torch.empty(10, 48)[:, :41]
    assert Reading.of(plain) == Reading(41, 41, 1) and Reading.of(padded) == Reading(48, 48, 4)
    assert Reading.of(torch.empty(10, 48)[:, 7:]) == Reading(41, 48, 1), "behind the last row there is no memory"
    assert Reading.of(torch.empty(10, 48)[:, 2:43]) == Reading(44, 48, 4), "there is memory behind the last row"
    assert Reading.of(torch.empty(10, 602)) == Reading(602, 602, 2)
    assert Reading.of(torch.empty(10, 48)) == Reading(48, 48, 4)
    assert Reading.of(torch.empty(10, 48, dtype=torch.bfloat16)) == Reading(48, 48, 8)
    assert Reading.of(torch.empty(10, 48, dtype=torch.float64)[:, :41]) == Reading(48, 48, 2)
    assert Reading.of(torch.empty(48)[None, :41]).columns in (41, 48), "the stride of a single row says nothing"
    assert Reading.of(torch.empty(1, 40).expand(9, 40)) == Reading(40, 0, 4), "all rows share their memory"


@pytest.mark.parametrize(("width", "stride"), [(128, 128), (100, 104), (64, 64), (47, 48), (41, 48), (10, 16), (8, 8)])
def test_padded_rows_of_the_papers_widths_need_no_mask(width: int, stride: int) -> None:
    """``aligned.empty_aligned`` gives matrices on a GPU these strides."""
    reading = Reading.of(torch.empty(10, stride)[:, :width])
    assert (split_columns(width)[-1].end <= reading.columns or width == 100) and reading.aligned == 4
    assert (reading.column_units, reading.stride_units) == (stride // 4, stride // 4)


def test_rounded() -> None:
    x = torch.randn(9, 41)
    assert torch.equal(rounded(x), x.bfloat16())


def test_wide_offsets() -> None:
    small, large = torch.empty(10, 4), torch.empty(1, 128).expand(1 << 24, 128)
    assert not wide(small) and not wide(large), "all rows share their memory"
    assert wide(small, torch.empty(1 << 24, 128, device="meta")) and not wide(torch.empty(1 << 23, 128, device="meta"))
