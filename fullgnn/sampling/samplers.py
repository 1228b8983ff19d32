"""The samplers that a configuration can name.

Contract: ``sampler(graph, num_hops, seed, **own keys) -> Sampler``.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from fullgnn.errors import ConfigError
from fullgnn.sampling.host_graph import HostGraph
from fullgnn.sampling.neighbors import Hop, NeighborSampler


class Sampler(Protocol):
    """Draws what a batch reads of the graph."""

    fanouts: tuple[int, ...]  # of each hop, from the targets outwards; ALL: all neighbours

    def sample(self, targets: np.ndarray, epoch: int, num_threads: int | None = None) -> list[Hop]:
        """The hops of some targets, from the targets outwards; see ``NeighborSampler.sample``."""


def neighbor(
    graph: HostGraph,
    num_hops: int,
    seed: int,
    fanouts: list[int],
    replace: bool = False,
    weighted: bool = False,
) -> NeighborSampler:
    """Some neighbours of each node, drawn anew in every epoch; see ``NeighborSampler``.

    Args:
        num_hops: how often the model reads neighbours.
        fanouts: from the targets outwards, one for each hop.

    Raises:
        ConfigError: a key is out of range, or does not fit the model or the graph.
    """
    check_depth(fanouts, num_hops)
    places = graph.weight is not None
    return NeighborSampler(graph.indptr, graph.indices, fanouts, graph.weight, replace, weighted, seed, places)


def check_depth(fanouts: Sequence[int], num_hops: int) -> None:
    """Refuse another number of fan-outs than the model has hops.

    Raises:
        ConfigError: one line that names both.
    """
    if len(fanouts) != num_hops:
        example = ",".join(map(str, (list(fanouts) + [10] * num_hops)[:num_hops]))
        raise ConfigError(
            f"sampler.fanouts has {len(fanouts)} numbers, and the model reads neighbours {num_hops} times: give one for"
            f" each, as in sampler.fanouts=[{example}]"
        )
