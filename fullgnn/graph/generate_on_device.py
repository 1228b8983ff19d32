"""The block model of ``generate.hierarchical_sbm`` by torch on a device: a GPU draws 100 million edges in seconds.

The random numbers are torch's, so a graph differs from numpy's of the same seed, and a GPU's from a CPU's.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fullgnn.graph.generate import block_model, node_at, split_keys
from fullgnn.kernels.spmm import LocalCSR


@dataclass(frozen=True, eq=False)
class RandomGraph:
    """A graph under shuffled node ids, its communities, and the order that a perfect reordering would find."""

    num_nodes: int
    pairs: Tensor  # (num_entries / 2,) int64, one * num_nodes + other for each edge, both shuffled
    community: Tensor  # (num_nodes,) int64, of each shuffled id
    perm: Tensor  # (num_nodes,) int64, the community order: new node i is node perm[i]

    def csr(self, perm: Tensor | None = None) -> LocalCSR:
        """The pattern of A + I as one block, with the nodes in the order ``perm``; None: in the shuffled order."""
        n, device = self.num_nodes, self.pairs.device
        first, second = split_keys(self.pairs, n)
        if perm is not None:
            new_id = torch.empty_like(perm)
            new_id[perm] = torch.arange(n, device=device)
            first, second = new_id[first], new_id[second]
        loops = torch.arange(n, device=device) * (n + 1)
        keys = torch.cat([first * n + second, second * n + first, loops])
        del first, second
        keys = keys.sort().values
        indptr = torch.searchsorted(keys, torch.arange(n + 1, device=device) * n)
        return LocalCSR(indptr.int(), keys.remainder_(n).int(), None, n, n)


class DeviceArrays:
    """The methods of ``generate.HostArrays``, by torch on ``device``."""

    xp = torch

    def __init__(self, seed: int, device: torch.device):
        self.rng = np.random.default_rng(seed)
        self.generator, self.device = torch.Generator(device).manual_seed(seed), device

    def random(self, count: int) -> Tensor:
        return torch.rand(count, dtype=torch.float64, device=self.device, generator=self.generator)

    def integers(self, high: int, size: tuple[int, ...]) -> Tensor:
        return torch.randint(high, size, device=self.device, generator=self.generator)

    def permutation(self, count: int) -> Tensor:
        return torch.randperm(count, device=self.device, generator=self.generator)

    def on_device(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def repeat(self, values: Tensor, counts: Tensor) -> Tensor:
        return torch.repeat_interleave(values, counts)

    def draw(self, cumulative: Tensor, base: Tensor, width: Tensor, counts: Tensor, count: int) -> Tensor:
        position = self.repeat(base, counts) + self.random(count) * self.repeat(width, counts)
        return node_at(torch, cumulative, position)

    def distinct(self, keys: Tensor) -> Tensor:
        return torch.unique_consecutive(keys.sort().values)


def random_graph(
    num_nodes: int, num_entries: int, num_communities: int, global_share: float, seed: int, device: torch.device
) -> RandomGraph:
    """Generate the graph that ``generate.hierarchical_sbm`` explains.

    Args:
        num_entries: exact number of stored non-zeros, both directions of each edge, without self-loops; even.

    Raises:
        ConfigError: no graph has these sizes.
    """
    ops = DeviceArrays(seed, device)
    pairs, perm, levels = block_model(ops, num_nodes, num_entries, num_communities, global_share)
    community = torch.empty_like(perm)
    sizes = ops.on_device(np.diff(levels[-1]))
    community[perm] = ops.repeat(torch.arange(len(sizes), device=device), sizes)
    return RandomGraph(num_nodes, pairs, community, perm)
