"""Which edges go to tensor cores, counted by hand on dense matrices."""

import numpy as np
import pytest
import torch

from fullgnn.kernels.spmm import LocalCSR, tiles
from fullgnn.kernels.spmm.tiles import (
    DENSITY_BINS,
    DENSITY_BOUNDS,
    GROUP,
    PANEL,
    TILE,
    Panels,
    split_columns,
    split_tiles,
    tile_density,
)
from tests.kernels.spmm.matrices import local_csr
from tests.kernels.spmm.on_gpu import MATRICES


@pytest.fixture(autouse=True, params=[1, 200, 1 << 24])
def stretches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sort the edges of one panel at a time, of some, or of all."""
    monkeypatch.setattr(tiles, "CHUNK_EDGES", request.param)


def unpacked(panels: Panels) -> np.ndarray:
    """(num_rows, num_cols) int: how often the panels hold each entry."""
    num_panels = len(panels.ptr) - 1
    dense = np.zeros((num_panels * PANEL, panels.num_cols + GROUP), int)
    columns = panels.all_columns(slice(0, panels.num_groups)).numpy()
    for panel, group in ((p, g) for p in range(num_panels) for g in range(panels.ptr[p], panels.ptr[p + 1])):
        for row in range(PANEL):
            word = int(panels.bits[group, row]) & 0xFFFFFFFF
            for bit in range(GROUP):
                dense[panel * PANEL + row, columns[group, bit]] += word >> bit & 1
    assert not dense[panels.num_rows :].any() and not dense[:, panels.num_cols :].any()
    return dense[: panels.num_rows, : panels.num_cols]


def entries(adj: LocalCSR) -> np.ndarray:
    dense = np.zeros((adj.num_rows, adj.num_cols), int)
    row = torch.arange(adj.num_rows).repeat_interleave(adj.indptr.diff().long())
    np.add.at(dense, (row.numpy(), adj.indices.numpy()), 1)
    assert all((adj.indices[a:b].diff() > 0).all() for a, b in zip(adj.indptr, adj.indptr[1:]))
    return dense


@pytest.mark.sample(4)
@pytest.mark.parametrize("threshold", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("name", MATRICES)
def test_tiles_above_the_threshold(name: str, threshold: float) -> None:
    mask = MATRICES[name]
    panels, rest = split_tiles(local_csr(mask, weighted=False)[0], threshold)
    expected = np.zeros_like(mask)
    for row in range(0, mask.shape[0], TILE):
        for column in range(0, mask.shape[1], TILE):
            tile = np.s_[row : row + TILE, column : column + TILE]
            if mask[tile].sum() > threshold * TILE * TILE:
                expected[tile] = mask[tile]
    assert np.array_equal(unpacked(panels), expected)
    assert np.array_equal(entries(rest), mask & ~expected)
    assert panels.nnz == expected.sum() and panels.adjacent


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", MATRICES)
def test_columns_that_a_panel_repeats(name: str) -> None:
    mask = MATRICES[name]
    panels, rest = split_columns(local_csr(mask, weighted=False)[0])
    dense = unpacked(panels)
    assert np.array_equal(dense + entries(rest), mask)
    assert panels.nnz == dense.sum()
    for panel, first in enumerate(range(0, len(mask), PANEL)):
        rows = slice(first, first + PANEL)
        count = mask[rows].sum(axis=0)
        taken = dense[rows].any(axis=0)
        assert np.array_equal(dense[rows], mask[rows] * taken), "a column is taken whole"
        assert taken[count >= 2].all()
        groups = slice(int(panels.ptr[panel]), int(panels.ptr[panel + 1]))
        assert groups.stop - groups.start == -(-(count >= 2).sum() // GROUP), "the number of groups is not the smallest"
        listed = panels.columns[groups].flatten()
        assert (listed.diff()[: taken.sum() - 1] > 0).all() and (listed[taken.sum() :] == mask.shape[1]).all()
        free = len(listed) - (count >= 2).sum()
        assert taken[count == 1].sum() == min(free, (count == 1).sum()), "free places are filled"


@pytest.mark.parametrize("name", MATRICES)
def test_density_of_the_tiles(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mask = MATRICES[name]
    expected = np.zeros(len(DENSITY_BINS), int)
    for row in range(0, mask.shape[0], TILE):
        for column in range(0, mask.shape[1], TILE):
            edges = mask[row : row + TILE, column : column + TILE].sum()
            expected[sum(edges / TILE**2 > bound for bound in DENSITY_BOUNDS)] += edges
    adj, _ = local_csr(mask, weighted=False)
    for counters in (0, 8, 1 << 30):
        monkeypatch.setattr(tiles, "COUNTERS_PER_EDGE", counters)
        density = tile_density(adj.indptr, adj.indices, adj.num_cols)
        assert density == pytest.approx((expected / mask.sum()).tolist(), abs=1e-15)


def test_an_order_makes_tiles_dense() -> None:
    """Scattered communities of 32 nodes have no dense tile until their nodes have consecutive numbers."""
    community = np.random.default_rng(0).permutation(np.repeat(np.arange(20), 32))
    mask = community[:, None] == community[None, :]
    scattered, _ = split_tiles(local_csr(mask, weighted=False)[0], 0.1)
    order = np.argsort(community)
    ordered, rest = split_tiles(local_csr(mask[np.ix_(order, order)], weighted=False)[0], 0.1)
    assert scattered.nnz == 0 and ordered.nnz == mask.sum() and rest.nnz == 0
    gathered, rest = split_columns(local_csr(mask, weighted=False)[0])
    assert gathered.nnz > 0.75 * mask.sum(), "columns need no order of their own"
