"""``NeighborSampler`` on a GPU that holds the structure of the graph: the same hops, made where they are read.

    draw        the places of the edges of each target, from the same random words (``_neighbors_gpu.draw``; torch
                operations for rows that are taken whole, and for draws by weight)
    mark        a bit for each target and each source, in one bitmap
    number      the ones in each word are counted and added up; the nodes whose bits are set are listed
    rename      the LOCAL id of a node is the number of ones before its bit

The host waits once in each hop, for the numbers of edges and sources, which are the shapes of the next hop. Uniform
draws have the same bits as on a CPU. In draws by weight without replacement, a logarithm may be rounded otherwise, and
with it the factors; the edges are the same unless two keys are as close as that.
"""

import numpy as np
import torch
from torch import Tensor

from fullgnn.errors import ConfigError
from fullgnn.kernels.dropout.mask import LOW
from fullgnn.kernels.dropout.philox import rounds
from fullgnn.kernels.support import gpu
from fullgnn.kernels.support.read_only import read_only_tensor
from fullgnn.kernels.support.to_device import move
from fullgnn.sampling.hop import PADDING, HopTensors
from fullgnn.sampling.neighbors import ALL, Draw, NeighborSampler

Places = tuple[Tensor, Tensor, Tensor | None]
"""The first edge of each target; the places of the edges, with further elements of any valid place; their factors."""


class GpuNeighborSampler:
    """Samples the neighbours of targets in one graph, whose structure is copied to ``device``.

    Args:
        on_host: the sampler whose hops this one makes.
        device: a GPU that runs Triton.

    Raises:
        ConfigError: Triton does not run on ``device``.
    """

    def __init__(self, on_host: NeighborSampler, device: torch.device):
        if not gpu.runs_triton(device):
            raise ConfigError(
                f"loader.sample_on_gpu=true needs a GPU and Triton, and the run is on {device.type}"
                f"{'' if gpu.has_triton() else ' without Triton'}: set it to false"
            )
        self.device, self.fanouts, self.how = device, on_host.fanouts, on_host.draw
        self._key, self._keep_places = on_host.key, on_host.keep_places
        arrays = on_host.indptr, on_host.indices, *on_host.by_weight
        self._indptr, indices, self._weights, self._cumulative = (read_only_tensor(one).to(device) for one in arrays)
        self._indices = indices if len(indices) else indices.new_zeros(1)  # a place that is not used is 0
        num_words = -(-on_host.num_nodes // 32)
        self._bits = torch.zeros(num_words, dtype=torch.int32, device=device)

    def sample(self, targets: np.ndarray, epoch: int) -> list[HopTensors]:
        """See ``NeighborSampler.sample``; the tensors are on the device."""
        nodes, hops = move(torch.from_numpy(targets.astype(np.int32)), self.device), list[HopTensors]()
        for hop, fanout in enumerate(self.fanouts):
            hops.append(self._hop(nodes, fanout, hop, epoch))
            nodes = hops[-1].sources
        self._bits.zero_()
        return hops

    def _hop(self, targets: Tensor, fanout: int, hop: int, epoch: int) -> HopTensors:
        from fullgnn.sampling._neighbors_gpu import THREADS, count_bits, list_nodes, mark, rename  # imports Triton

        starts, places, factors = self._draw(targets, fanout, hop, epoch)
        num_targets, num_words = len(targets), len(self._bits)
        sources_of_edges = self._indices[places]
        for ids, count in ((targets, starts.new_full((1,), num_targets)), (sources_of_edges, starts[-1:])):
            if len(ids):
                mark[(-(-len(ids) // THREADS),)](ids, count, self._bits, THREADS)
        counts = torch.empty_like(self._bits)
        grid = (-(-num_words // THREADS),)
        count_bits[grid](self._bits, counts, num_words, THREADS)
        after = counts.cumsum(0, dtype=torch.int32)
        before = after - counts
        num_edges, num_sources = torch.stack([starts[-1], after[-1].long()]).tolist()  # the host waits

        sources = torch.empty(num_sources, dtype=torch.int32, device=self.device)
        list_nodes[grid](self._bits, before, sources, num_words, THREADS)
        target_index = torch.empty_like(targets)
        indices = torch.zeros(num_edges + PADDING, dtype=torch.int32, device=self.device)[:num_edges]
        for ids, local in ((targets, target_index), (sources_of_edges[:num_edges], indices)):
            if len(ids):
                rename[(-(-len(ids) // THREADS),)](ids, local, len(ids), self._bits, before, THREADS)
        return HopTensors(
            sources,
            target_index,
            starts.int(),
            indices,
            places[:num_edges] if self._keep_places else None,
            None if factors is None else factors[:num_edges],
        )

    def _draw(self, targets: Tensor, fanout: int, hop: int, epoch: int) -> Places:
        first = self._indptr[targets]
        degree = self._indptr[targets + 1] - first
        if fanout == ALL:
            starts, places = _rows(first, degree)
            return starts, places, torch.ones_like(places, dtype=torch.float64) if self.how.weighted else None
        if self.how.weighted:
            rows = targets, first, degree, fanout, hop, epoch
            return self._by_weight_replaced(*rows) if self.how == Draw.WEIGHTED_REPLACE else self._by_weight(*rows)
        replace = self.how == Draw.UNIFORM_REPLACE
        starts = _running((degree > 0) * fanout if replace else degree.clamp(max=fanout))
        places = torch.zeros(len(targets) * fanout, dtype=torch.int64, device=self.device)  # at most
        if len(targets):
            from fullgnn.kernels.dropout._philox_gpu import signed
            from fullgnn.sampling._neighbors_gpu import THREADS, draw

            key = signed(self._key[0] | self._key[1] << 32)
            grid = (-(-len(targets) // THREADS),)
            draw[grid](
                self._indptr, targets, starts, places, len(targets), fanout, hop, epoch & LOW, key, replace, THREADS
            )
        return starts, places, None

    def _by_weight_replaced(
        self, targets: Tensor, first: Tensor, degree: Tensor, fanout: int, hop: int, epoch: int
    ) -> Places:
        """Draw from the running sums of each row; see ``_neighbors_cpu._draw_weighted``."""
        end = first + degree
        padded = torch.cat([self._cumulative, self._cumulative.new_zeros(1)])  # [-1] for a row at the start: 0
        total = torch.where(degree > 0, padded[end - 1], 0)
        drawn = (total > 0).nonzero()[:, 0]
        starts = _running((total > 0) * fanout)
        total, low, high = total[drawn, None], first[drawn, None], end[drawn, None] - 1
        wanted = self._units(targets[drawn], torch.arange(fanout, device=self.device), hop, epoch) * total
        low, high = low.expand_as(wanted).contiguous(), high.expand_as(wanted).contiguous()
        while bool((low < high).any()):  # the first place whose running sum is above the wanted one
            middle = (low + high) // 2
            above = self._cumulative[middle] > wanted
            low, high = torch.where(above, low, middle + 1).minimum(high), torch.where(above, middle, high)
        while bool((empty := self._weights[low] <= 0).any()):  # rounding has carried it to the end of the row
            low = low - empty.long()
        factors = total / (self._weights[low] * fanout)
        return starts, low.flatten(), factors.flatten()

    def _by_weight(self, targets: Tensor, first: Tensor, degree: Tensor, fanout: int, hop: int, epoch: int) -> Places:
        """The edges with the smallest keys Exp(1) / weight; see ``_neighbors_cpu._draw_weighted``."""
        starts, places = _rows(first, degree)
        row = torch.arange(len(targets), device=self.device).repeat_interleave(degree)
        weight, whole = self._weights[places], degree[row] <= fanout
        number = places - first[row]
        key = -self._units(targets[row], number[:, None], hop, epoch)[:, 0].log() / weight
        key = torch.where(whole, torch.zeros_like(key), torch.where(weight > 0, key, torch.inf))
        order = torch.sort(key, stable=True).indices
        order = order[torch.sort(row[order], stable=True).indices]  # by row, then by key
        place_in_row = torch.empty_like(order)
        place_in_row[order] = torch.arange(len(order), device=self.device) - starts[row[order]]
        won = whole | ((place_in_row < fanout) & (weight > 0))
        num_positive = torch.zeros_like(degree).index_add_(0, row, (weight > 0).long())
        # The smallest key that has not won, where there is one.
        losing = (~whole & (place_in_row == fanout) & (weight > 0)).nonzero()[:, 0]
        threshold = torch.full((len(targets),), torch.inf, dtype=torch.float64, device=self.device)
        threshold[row[losing]] = key[losing]
        factor = -1 / torch.expm1(-weight * threshold[row])
        factor = torch.where(whole | (num_positive[row] <= fanout), 1.0, factor)
        kept = won.nonzero()[:, 0]
        counts = torch.zeros_like(degree).index_add_(0, row[kept], torch.ones_like(kept))
        return _running(counts), places[kept], factor[kept]

    def _units(self, nodes: Tensor, numbers: Tensor, hop: int, epoch: int) -> Tensor:
        """Float64 numbers in (0, 1) for each of (m,) ``nodes`` and the (k,) or (m, k) ``numbers`` of its draws."""
        constant = [torch.full((1, 1), one, device=self.device) for one in (hop, epoch & LOW)]
        numbers = numbers.expand(len(nodes), numbers.shape[-1])
        words = rounds((nodes.long()[:, None], numbers >> 1, *constant), self._key)
        odd = (numbers & 1).bool()
        high, low = torch.where(odd, words[2], words[0]), torch.where(odd, words[3], words[1])
        return ((high << 21 ^ low >> 11).double() + 0.5) * 2.0**-53


def _running(counts: Tensor) -> Tensor:
    """(n + 1,) int64 running sums of (n,) ``counts``, from 0."""
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def _rows(first: Tensor, degree: Tensor) -> tuple[Tensor, Tensor]:
    """Where each row's edges begin, and the places of all edges of all rows."""
    starts = _running(degree)
    shift = (first - starts[:-1]).repeat_interleave(degree)
    return starts, torch.arange(len(shift), device=first.device) + shift
