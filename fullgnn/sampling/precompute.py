"""The first product of sampled training, computed once: batches read rows of A X in place of X.

The features are constant, so their product A X with the matrix of the whole graph is too, as in full-batch training
with ``optimizations.cache_aggregation``. A model whose first layer reads the features only through A X, and perhaps X
beside it, as a skip connection does, then reads one hop less, and what its first layer computes is exact. PaGraph calls
this pre-processing, PP (Lin et al., SoCC 2020).
"""

from dataclasses import dataclass

import numpy as np
import torch

from fullgnn.errors import UnsupportedError
from fullgnn.graph import Graph, Propagation, row_sums
from fullgnn.graph.normalize import normalized_entries, with_self_loops
from fullgnn.graph.sparse_features import to_dense
from fullgnn.nn import contract_of
from fullgnn.schemes.block import Block
from fullgnn.schemes.inputs import PropagatedInput

COLUMNS_AT_ONCE = 64
"""Columns multiplied at a time, in float64."""


@dataclass(frozen=True)
class Precomputed:
    """What the rows of features hold: the products A^k X of some powers k, side by side."""

    propagation: Propagation  # A
    powers: tuple[int, ...]  # 0, 1 or both

    @classmethod
    def of(cls, model: torch.nn.Module, name: str) -> "Precomputed":
        """What can be computed for ``model``.

        Args:
            name: of the model.

        Raises:
            UnsupportedError: the first layer reads more than these products.
        """
        contract = contract_of(model)
        propagation, powers = contract.input_propagation, contract.input_powers
        if propagation is not None and set(powers) <= {0, 1}:
            return cls(propagation, powers)
        why = contract.disables.get("cache_aggregation") or "it reads more of the features than A X"
        raise UnsupportedError(f"loader.precompute=true is not possible with model={name}: {why}: leave it out")

    def rows(self, graph: Graph, dtype: str) -> np.ndarray:
        """(num_nodes, len(powers) F), C-contiguous, of ``dtype``: the products, which are summed in float64."""
        x, number = to_dense(graph.features, dtype), len(self.powers)
        matrix = graph.adjacency(np.float64)
        sums = None
        if self.propagation.needs_row_sums:
            sums = row_sums(graph, self.propagation.self_loops, self.propagation.without_sums)
        if self.propagation.self_loops:
            matrix = with_self_loops(matrix)
        matrix.data = normalized_entries(matrix, *self.propagation.scales(sums), np.float64)
        products = np.empty((len(x), number * x.shape[1]), dtype)
        for first in range(0, x.shape[1], COLUMNS_AT_ONCE):
            some = x[:, first : first + COLUMNS_AT_ONCE]
            for turn, power in enumerate(self.powers):
                place = slice(turn * x.shape[1] + first, turn * x.shape[1] + first + some.shape[1])
                products[:, place] = matrix @ some.astype(np.float64) if power else some
        return products

    def input(self, block: Block, rows: torch.Tensor) -> PropagatedInput:
        """The input of the model.

        Args:
            block: names the inputs of a batch, all of which are targets.
            rows: (num_inputs, len(powers) F).
        """
        parts = rows.chunk(len(self.powers), dim=1)
        return PropagatedInput(block, self.propagation, {k: part.contiguous() for k, part in zip(self.powers, parts)})
