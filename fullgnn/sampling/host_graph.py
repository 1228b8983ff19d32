"""The graph as the processes of one machine read it: on the host, in its original order, once for all of them."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.sparse import csr_array

from fullgnn.codecs import Features
from fullgnn.graph import Graph, row_sums
from fullgnn.graph.normalize import check_entries
from fullgnn.graph.sparse_features import NodeFeatures
from fullgnn.sampling.pagraph import CrossFreeParts
from fullgnn.schemes.base import BlockRequest

Encode = Callable[[Features], tuple[NodeFeatures, dict[str, np.ndarray]]]
"""Maps features to encoded rows and to what the codec has learnt."""


def as_they_are(features: Features) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The encoding of a codec that changes nothing."""
    return features.whole(), {}


def as_sparse(features: Features) -> tuple[csr_array, dict[str, np.ndarray]]:
    """The encoding that makes the features a sparse matrix."""
    return features.sparse(), {}


@dataclass(frozen=True, eq=False)
class HostGraph:
    """What sampled training reads of a graph. All ids are original ones."""

    indptr: np.ndarray  # (num_nodes + 1,) int64
    indices: np.ndarray  # (num_edges,) int32; row i holds the nodes that node i reads from, ascending
    weight: np.ndarray | None  # (num_edges,) float32 or float64; None: all 1
    features: NodeFeatures  # (num_nodes, W) encoded rows, see ``fullgnn.codecs``; or a sparse matrix
    labels: np.ndarray  # as ``Graph.labels``
    train: np.ndarray  # (num_train,) int64, the training nodes, ascending
    row_sums: dict[bool, np.ndarray] = field(default_factory=dict)
    """By self_loops, (num_nodes,) float64, see ``graph.row_sums``; those that the model needs."""
    extra: dict[str, np.ndarray] = field(default_factory=dict)
    """What the sampler has prepared, see ``samplers.py``."""
    codec_state: dict[str, np.ndarray] = field(default_factory=dict)
    """What the codec has learnt of all features, see ``fullgnn.codecs``."""
    split: CrossFreeParts | None = None
    """The training nodes of each rank; None: every batch is cut."""

    @property
    def num_nodes(self) -> int:
        return len(self.indptr) - 1

    @classmethod
    def of(
        cls,
        graph: Graph,
        request: BlockRequest,
        dtype: str,
        extra: dict[str, np.ndarray] | None = None,
        encode: Encode = as_they_are,
    ) -> "HostGraph":
        """Take over a graph, and add up what a model with this ``request`` normalises by.

        Args:
            dtype: of the run.
            encode: see ``Encode``.

        Raises:
            DataError: a sum of weights, or a normalised weight, is out of range.
        """
        sums = {
            propagation.self_loops: row_sums(graph, propagation.self_loops, propagation.without_sums)
            for propagation in request.propagations
            if propagation.needs_row_sums
        }
        for propagation in request.propagations:
            own = sums.get(propagation.self_loops) if propagation.needs_row_sums else None
            check_entries(graph, propagation, own, np.dtype(dtype))
        rows, state = encode(Features(graph.features, dtype, graph))
        edges = graph.indptr.astype(np.int64, copy=False), graph.indices, graph.weight
        train = np.flatnonzero(graph.train_mask)
        return cls(*edges, rows, graph.labels, train, sums, extra or {}, state)
