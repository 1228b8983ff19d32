"""A block made from a dense matrix, for models in one process."""

from functools import partial

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from fullgnn.graph import Propagation
from fullgnn.kernels.epilogue.epilogue import apply_epilogue_
from fullgnn.kernels.spmm import NO_EPILOGUE, Epilogue
from fullgnn.schemes import Block, BlockProduct, BlockRequest
from fullgnn.schemes.edges import Stage
from fullgnn.schemes.multiplication import local_csr
from fullgnn.schemes.row_exchange import ONE_RANK, RowExchange
from tests.oracle import normalize

KIPF = Propagation()


class DenseMultiplication:
    """diag(after) M diag(before); ``taken`` notes whether X came already scaled."""

    def __init__(self, matrix: Tensor, before: Tensor | None = None, after: Tensor | None = None):
        self.matrix, self.input_scale, self.after, self.taken = matrix, before, after, list[bool]()

    def __call__(self, x: Tensor, epilogue: Epilogue = NO_EPILOGUE, *, scaled: bool = False) -> Tensor:
        self.taken.append(scaled)
        y = self.matrix @ (x if scaled or self.input_scale is None else x * self.input_scale[:, None])
        return apply_epilogue_(y if self.after is None else y * self.after[:, None], epilogue)

    def tensors(self) -> list[Tensor]:
        return [self.matrix]


def dense_block(matrix: Tensor, targets: Tensor | None = None, propagation: Propagation = KIPF) -> Block:
    """A block whose product for ``propagation`` is that with the square ``matrix``, or with its rows ``targets``.

    The original ids are 0, 1, ...
    """
    ids = torch.arange(len(matrix), device=matrix.device)
    rows = matrix if targets is None else matrix[targets]
    return Block(ids, {propagation: BlockProduct(DenseMultiplication(rows), DenseMultiplication(rows.T))}, targets)


def block_of(adj: np.ndarray, request: BlockRequest, targets: Tensor | None = None) -> Block:
    """A block with all that a model ``request``, from the dense stored adjacency ``adj``, in one process."""
    ids = torch.arange(len(adj))
    rows = ids if targets is None else targets
    products, edges = {}, {}
    for propagation in request.propagations:
        matrix = torch.from_numpy(normalize(adj, propagation.normalization, propagation.self_loops))[rows]
        products[propagation] = BlockProduct(DenseMultiplication(matrix), DenseMultiplication(matrix.T))
    for edge_set in request.edges:
        stored = adj.copy()
        if edge_set.self_loops:
            np.fill_diagonal(stored, 1)
        csr = csr_array(stored[rows.numpy()])
        weighted = bool((adj != adj.astype(bool)).any())
        edges[edge_set] = (Stage(local_csr(csr, not weighted, torch.device("cpu"))),)
    exchange = partial(RowExchange, len(adj), len(rows))
    return Block(ids, products, targets, row_exchange=exchange, edges=edges, ranks=ONE_RANK)
