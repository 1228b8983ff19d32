"""PaGraph's partition of the training nodes, in which no part reads the features of another one.

Every part has some of the training nodes, and a copy of everything that these may read: their in-neighbourhoods of as
many hops as the model has. So the rank of a part draws and loads on its own, and the copies are the price. To keep them
few, training nodes that read the same nodes go to the same part; to keep the parts balanced, a part is worth less the
more training nodes it has:

    score_i(v) = |TV_i ∩ IN(v)| (TV_avg - |TV_i|) / |PV_i|

TV_i are the training nodes of part i so far, PV_i all of its nodes, IN(v) what v reads in all hops. A training node
goes to the part with the highest score.

Source: Lin et al., "PaGraph: scaling GNN training on large graphs via computation-aware caching", SoCC 2020, section
3.4. The paper leaves open, and here: TV_avg is rounded up, |PV_i| of an empty part counts as 1, a tie goes to the part
with fewer training nodes, then to the lower one, and training nodes are taken by ascending id.
"""

from dataclasses import dataclass

import numpy as np

from fullgnn.errors import ConfigError


@dataclass(frozen=True, eq=False)
class CrossFreeParts:
    """Training nodes in parts, each with all that it reads."""

    train: np.ndarray  # (num_train,) int64 ids
    part: np.ndarray  # (num_train,) int32, the part of each
    num_nodes: np.ndarray  # (num_parts,) int64, PV_i: the nodes of each part, copies included
    member: np.ndarray  # (num_nodes of the graph, num_words) uint64: bit i says that part i holds the node

    @property
    def num_parts(self) -> int:
        return len(self.num_nodes)

    @property
    def num_train(self) -> np.ndarray:
        """(num_parts,) int64, the training nodes of each part."""
        return np.bincount(self.part, minlength=self.num_parts)

    def nodes(self, part: int) -> np.ndarray:
        """(n,) int64 ids of the nodes that ``part`` holds, ascending."""
        return np.flatnonzero(self.member[:, part // 64] >> np.uint64(part % 64) & np.uint64(1))

    @property
    def imbalance(self) -> float:
        """Training nodes of the largest part over the mean."""
        return float(self.num_train.max() * self.num_parts / len(self.train)) if len(self.train) else 1.0

    @property
    def redundancy(self) -> float:
        """The copies of a part, on average, over the nodes of the graph; a node that n parts hold has n - 1 copies."""
        held = np.count_nonzero(self.member.any(1))
        return float((self.num_nodes.sum() - held) / self.num_parts / max(1, len(self.member)))


def cross_partition_free(
    indptr: np.ndarray, indices: np.ndarray, train: np.ndarray, num_parts: int, num_hops: int
) -> CrossFreeParts:
    """Give every training node to a part, and every part what its training nodes read; see the head of this file.

    Args:
        indptr: (num_nodes + 1,) int64; indices: (num_edges,) int32: row i holds the nodes that node i reads from.
        train: (num_train,) int64 ids, ascending.
        num_hops: how often the model reads neighbours.

    Raises:
        ConfigError: there is no part.
    """
    if num_parts < 1:
        raise ConfigError(f"a graph cannot be cut into {num_parts} parts: choose 1 or more")
    from fullgnn.sampling._pagraph_cpu import assign  # imports numba

    num_nodes = len(indptr) - 1
    part_of, sizes = np.full(num_nodes, -1, np.int32), np.zeros((2, num_parts), np.int64)
    member = np.zeros((num_nodes, -(-num_parts // 64)), np.uint64)
    average = -(-len(train) // num_parts)
    assign(indptr, indices, train.astype(np.int64, copy=False), num_hops, average, part_of, member, sizes)
    return CrossFreeParts(train, part_of[train], sizes[1], member)
