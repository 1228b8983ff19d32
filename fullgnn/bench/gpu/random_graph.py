"""``fullgnn.graph.hierarchical_sbm`` by operations of torch: the same random graphs, drawn on the device.

A hundred million edges take seconds on a GPU. The numbers are other ones than numpy's, and other ones on a GPU than on
a CPU. Draws come in chunks, so that beside the edges themselves memory does not grow with the graph.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fullgnn.errors import ConfigError
from fullgnn.graph.generate import (
    DEGREE_EXPONENT,
    MAX_DEGREE_RATIO,
    OCCUPANCY,
    SAMPLING_ROUNDS,
    check_density,
    nested_groups,
)

CHUNK = 1 << 24
"""Pairs drawn at once: about 1 GB of temporaries."""


@dataclass(frozen=True, eq=False)
class CSR:
    """A 0/1 pattern on the device."""

    indptr: Tensor  # (num_nodes + 1,) int32
    indices: Tensor  # (nnz,) int32, sorted within a row

    @property
    def num_nodes(self) -> int:
        return self.indptr.numel() - 1

    @property
    def nnz(self) -> int:
        return self.indices.numel()


@dataclass(frozen=True, eq=False)
class RandomGraph:
    """Under shuffled ids, what it was made of, and the order that a perfect reordering would find."""

    num_nodes: int
    pairs: Tensor  # (num_entries / 2,) int64, one + num_nodes * other for each edge, both shuffled
    community: Tensor  # (num_nodes,) int64, of each shuffled id
    perm: Tensor  # (num_nodes,) int64, the community order: new node i is node perm[i]

    def csr(self, perm: Tensor | None = None) -> CSR:
        """The pattern of A + I, with the nodes in the order ``perm``; None: as they are."""
        n, device = self.num_nodes, self.pairs.device
        one = self.pairs % n
        other = self.pairs // n
        if perm is not None:
            new_id = torch.empty_like(perm)
            new_id[perm] = torch.arange(n, device=device)
            one, other = new_id[one], new_id[other]
        loops = torch.arange(n, device=device) * (n + 1)
        keys = torch.cat([one * n + other, other * n + one, loops])
        del one, other
        keys = keys.sort().values
        indptr = torch.searchsorted(keys, torch.arange(n + 1, device=device) * n)
        return CSR(indptr.int(), keys.remainder_(n).int())


def hierarchical_sbm(
    num_nodes: int, num_entries: int, num_communities: int, global_share: float, seed: int, device: torch.device
) -> RandomGraph:
    """See ``fullgnn.graph.hierarchical_sbm``: the same levels, quotas and degrees.

    Args:
        num_entries: exact number of stored non-zeros, both directions of each edge, without self-loops; even.
    """
    check_density(num_nodes, num_entries)
    if num_entries % 2:
        raise ConfigError(f"num_entries={num_entries} is odd, but a symmetric graph stores every edge twice")
    generator = torch.Generator(device).manual_seed(seed)
    num_pairs = num_entries // 2
    starts_of = nested_groups(np.random.default_rng(seed), num_nodes, num_communities)
    levels = [torch.from_numpy(starts).to(device) for starts in starts_of]
    degree = torch.rand(num_nodes, dtype=torch.float64, device=device, generator=generator)
    degree = (1 - degree).pow_(-1 / (DEGREE_EXPONENT - 1)).clamp_(max=MAX_DEGREE_RATIO)
    cumulative = torch.cat([degree.new_zeros(1), degree.cumsum(0)])

    keys: list[Tensor] = []
    carry = degree.new_zeros(num_nodes)  # edges that each group of the level below could not hold
    children = torch.arange(num_nodes + 1, device=device)  # starts of those groups; at first, single nodes
    whole = torch.tensor([0, num_nodes], device=device)
    for starts in [*levels, whole]:
        share = global_share if starts is whole else (1 - global_share) / len(levels)
        parent = torch.searchsorted(starts, children[:-1], right=True) - 1
        mass = cumulative[starts].diff() / cumulative[-1]
        demand = num_pairs * share * mass + _sum_by(parent, carry, len(mass))
        possible = _num_pairs(starts) - _sum_by(parent, _num_pairs(children), len(mass))
        bounds = torch.minimum(demand, OCCUPANCY * possible).cumsum(0).add_(1e-6).floor_().long()
        quota = bounds.diff(prepend=bounds.new_zeros(1))
        level_keys, placed = _sample_level(generator, num_nodes, starts, children, cumulative, quota)
        keys.append(level_keys)
        carry, children = demand - placed, starts
    pairs = torch.cat(keys).sort().values
    del keys
    pairs = _filled_uniformly(generator, num_nodes, pairs, num_pairs)

    perm = torch.randperm(num_nodes, device=device, generator=generator)  # the shuffled id of each node
    low, high = pairs // num_nodes, pairs % num_nodes
    community = torch.empty_like(perm)
    community[perm] = torch.searchsorted(levels[-1], torch.arange(num_nodes, device=device), right=True) - 1
    return RandomGraph(num_nodes, perm[low] * num_nodes + perm[high], community, perm)


def _sample_level(
    generator: torch.Generator, num_nodes: int, starts: Tensor, children: Tensor, cumulative: Tensor, quota: Tensor
) -> tuple[Tensor, Tensor]:
    """Distinct pairs of nodes that share a group of this level but not one of the level below.

    Returns:
        sorted keys; and the number of pairs placed in each group, at most its quota.
    """
    device = starts.device
    child = torch.repeat_interleave(torch.arange(len(children) - 1, device=device), children.diff())
    base, width = cumulative[starts[:-1]], cumulative[starts].diff()
    keys = quota.new_empty(0)
    placed = torch.zeros_like(quota)

    def draw(group: Tensor) -> Tensor:
        at = torch.rand(len(group), dtype=torch.float64, device=device, generator=generator)
        position = at.mul_(width[group]).add_(base[group])
        return (torch.searchsorted(cumulative, position, right=True) - 1).clamp_(max=num_nodes - 1)

    for _ in range(SAMPLING_ROUNDS):
        until = (quota - placed).cumsum(0)
        count = int(until[-1])
        if count == 0:
            break
        drawn = []
        for first in range(0, count, CHUNK):
            edge = torch.arange(first, min(first + CHUNK, count), device=device)
            group = torch.searchsorted(until, edge, right=True)
            one, other = draw(group), draw(group)
            apart = child[one] != child[other]
            one, other = one[apart], other[apart]
            drawn.append(torch.minimum(one, other) * num_nodes + torch.maximum(one, other))
        keys = _merged(keys, torch.cat(drawn))
        placed = torch.searchsorted(keys, starts * num_nodes).diff()  # groups are ranges of keys
    return keys, placed


def _filled_uniformly(generator: torch.Generator, num_nodes: int, pairs: Tensor, total: int) -> Tensor:
    """Sorted ``pairs`` and new ones, uniformly random, ``total`` in all."""
    while (need := total - len(pairs)) > 0:
        drawn = torch.randint(num_nodes, (2, min(need, CHUNK)), device=pairs.device, generator=generator)
        one, other = drawn[:, drawn[0] != drawn[1]]
        pairs = _merged(pairs, torch.minimum(one, other) * num_nodes + torch.maximum(one, other))
    return pairs


def _merged(known: Tensor, candidates: Tensor) -> Tensor:
    """The distinct values of both, sorted."""
    return torch.unique_consecutive(torch.cat([known, candidates]).sort().values)


def _sum_by(group: Tensor, values: Tensor, num_groups: int) -> Tensor:
    return torch.bincount(group, values, minlength=num_groups)


def _num_pairs(starts: Tensor) -> Tensor:
    """Unordered pairs of nodes inside each group."""
    size = starts.diff().double()
    return size * (size - 1) / 2
