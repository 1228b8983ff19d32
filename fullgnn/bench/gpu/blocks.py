"""Blocks of an adjacency that are hard to multiply, and their products in float64."""

import torch
from torch import Tensor

from fullgnn.bench.gpu.random_graph import hierarchical_sbm
from fullgnn.kernels.spmm import LocalCSR

_COLUMNS_AT_ONCE = 64


def ragged(device: torch.device, toy: bool = False) -> LocalCSR:
    """Rows of all lengths: every seventh empty, as is the last; one full; and a corner as dense as a community."""
    num_rows, num_cols = (45, 61) if toy else (1237, 1501)
    generator = torch.Generator(device).manual_seed(0)
    mask = torch.rand(num_rows, num_cols, device=device, generator=generator) < 0.02
    corner = mask[: num_rows // 4, : num_cols // 4]
    corner |= torch.rand(corner.shape, device=device, generator=generator) < 0.6
    mask[3::7] = False
    mask[-1] = False
    mask[num_rows // 2] = True
    return _local_csr(mask)


def weighted(device: torch.device, toy: bool = False) -> LocalCSR:
    """``ragged`` with a value for each entry."""
    block = ragged(device, toy)
    values = torch.randn(block.nnz, device=device, generator=torch.Generator(device).manual_seed(1))
    return LocalCSR(block.indptr, block.indices, values, block.num_rows, block.num_cols)


def thin(device: torch.device, toy: bool = False) -> LocalCSR:
    """Fewer rows than any panel, and one entry in most."""
    mask = torch.zeros(5, 3 if toy else 40, dtype=torch.bool, device=device)
    mask[[0, 2, 4], [0, 1, 2]] = True
    return _local_csr(mask)


def many_columns(device: torch.device) -> LocalCSR:
    """More columns than two bytes name, and communities."""
    graph = hierarchical_sbm(70_001, 1_400_000, 16, 0.15, 0, device)
    csr = graph.csr(graph.perm)
    return LocalCSR(csr.indptr, csr.indices, None, csr.num_nodes, csr.num_nodes)


def star(num_cols: int, device: torch.device) -> LocalCSR:
    """One row with an edge to every column, and four rows with three edges each."""
    indptr = torch.tensor([0, *(num_cols + 3 * row for row in range(5))], dtype=torch.int32, device=device)
    few = torch.tensor([0, num_cols // 2, num_cols - 1], dtype=torch.int32, device=device).repeat(4)
    indices = torch.cat([torch.arange(num_cols, dtype=torch.int32, device=device), few])
    return LocalCSR(indptr, indices, None, 5, num_cols)


def full(num_rows: int, num_cols: int, device: torch.device) -> LocalCSR:
    """Every entry is there: panels that are as long as there are columns."""
    indptr = torch.arange(num_rows + 1, dtype=torch.int32, device=device) * num_cols
    indices = torch.arange(num_cols, dtype=torch.int32, device=device).repeat(num_rows)
    return LocalCSR(indptr, indices, None, num_rows, num_cols)


def corner(num_rows: int, num_cols: int, size: int, device: torch.device) -> LocalCSR:
    """Edges in the last ``size`` rows alone, each to the last ``size`` columns."""
    indptr = torch.zeros(num_rows + 1, dtype=torch.int32, device=device)
    indptr[-size:] = torch.arange(1, size + 1, dtype=torch.int32, device=device) * size
    indices = torch.arange(num_cols - size, num_cols, dtype=torch.int32, device=device).repeat(size)
    return LocalCSR(indptr, indices, None, num_rows, num_cols)


def reference(block: LocalCSR, x: Tensor) -> Tensor:
    """(num_rows, F) float64 product on the device."""
    row = torch.repeat_interleave(
        torch.arange(block.num_rows, device=x.device), block.indptr.long().diff(), output_size=block.nnz
    )
    column = block.indices.long()
    out = torch.zeros(block.num_rows, x.shape[1], dtype=torch.float64, device=x.device)
    for first in range(0, x.shape[1], _COLUMNS_AT_ONCE):
        part = slice(first, first + _COLUMNS_AT_ONCE)
        addends = x[:, part].index_select(0, column).double()
        if block.values is not None:
            addends *= block.values.double()[:, None]
        out[:, part] = out[:, part].index_add(0, row, addends)
    return out


def magnitudes(block: LocalCSR, x: Tensor) -> Tensor:
    """(num_rows, F) float64 |A| |X|: what an error of the product is measured by."""
    values = None if block.values is None else block.values.abs()
    return reference(LocalCSR(block.indptr, block.indices, values, block.num_rows, block.num_cols), x.abs())


def _local_csr(mask: Tensor) -> LocalCSR:
    row, column = mask.nonzero(as_tuple=True)
    indptr = torch.searchsorted(row, torch.arange(len(mask) + 1, device=mask.device))
    return LocalCSR(indptr.int(), column.int(), None, *mask.shape)
