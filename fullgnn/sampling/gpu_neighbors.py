"""``NeighborSampler`` on a GPU that holds the structure of the graph: the same hops, made where they are read.

    draw        the places of the edges of each target, from the same random words (``_neighbors_gpu.draw``; torch
                operations for rows that are taken whole, and for draws by weight)
    mark        a bit for each target and each source, in one bitmap
    number      the ones in each word are counted and added up; the nodes whose bits are set are listed
    rename      the LOCAL id of a node is the number of ones before its bit

The host waits once for a batch. Until then it knows no numbers of edges and sources, only how many there may be at
most: the *capacity* of the tensors of a hop, which follows from the number of targets and the fan-outs. The numbers
stay in device memory, where the kernels read them, and what lies behind them in a tensor is 0, a valid node and a valid
place. After the last hop the host reads the numbers of all hops at once, and cuts the tensors.

The fan-out ``ALL`` and draws by weight without replacement look at all edges of the targets, a number that nothing
bounds but the graph. The host waits once more for it in each hop of these.

Uniform draws have the same bits as on a CPU. In draws by weight without replacement, a logarithm may be rounded
otherwise, and with it the factors; the edges are the same unless two keys are as close as that.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fullgnn.errors import ConfigError
from fullgnn.kernels.dropout.philox import LOW, rounds
from fullgnn.kernels.support import gpu
from fullgnn.kernels.support.read_only import read_only_tensor
from fullgnn.kernels.support.to_device import move
from fullgnn.room import module_on_use
from fullgnn.sampling.hop import PADDING, Hop
from fullgnn.sampling.neighbors import ALL, Draw, NeighborSampler

if TYPE_CHECKING:
    from fullgnn.kernels.dropout import _philox_gpu
    from fullgnn.sampling import _neighbors_gpu
else:
    _philox_gpu = module_on_use("fullgnn.kernels.dropout._philox_gpu")
    _neighbors_gpu = module_on_use("fullgnn.sampling._neighbors_gpu")

EdgePlaces = tuple[Tensor, Tensor, Tensor | None]
"""The first edge of each target, and the places of the edges and their factors, as long as their capacity."""
_Padded = tuple[Hop[Tensor], tuple[Tensor, ...]]
"""A hop whose tensors are as long as their capacity, with int64 ``indptr``; and, each (1,) int64, its numbers of
targets, edges and sources, and of edges to oneself, if they are counted."""


@dataclass(frozen=True, eq=False)
class _Targets:
    """The targets of a hop; tensors are as long as the capacity of the targets."""

    nodes: Tensor  # int32 GLOBAL ids; 0 behind the last one
    count: Tensor  # (1,) int64, how many there are
    first: Tensor  # int64, the place of the first edge of each
    degree: Tensor  # int64; 0 behind the last one


class GpuNeighborSampler:
    """Samples the neighbours of targets in one graph, whose structure is copied to ``device``.

    Args:
        on_host: the sampler whose hops this one makes.
        device: a GPU that runs Triton.
        counts_loops: whether the hops tell how many edges lead from a target to itself.

    Raises:
        ConfigError: Triton does not run on ``device``.
    """

    def __init__(self, on_host: NeighborSampler, device: torch.device, counts_loops: bool = False):
        if not gpu.runs_triton(device):
            raise ConfigError(
                f"loader.sample_on_gpu=true needs a GPU and Triton, and the run is on {device.type}"
                f"{'' if gpu.has_triton() else ' without Triton'}: set it to false"
            )
        self.device, self.fanouts, self.how = device, on_host.fanouts, on_host.draw
        self._key, self._keep_places, self._counts_loops = on_host.key, on_host.keep_places, counts_loops
        self._num_nodes, self._num_edges = on_host.num_nodes, len(on_host.indices)
        arrays = on_host.indptr, on_host.indices, on_host.weights, on_host.cumulative
        self._indptr, *of_edges = (read_only_tensor(array).to(device) for array in arrays)
        # A place that is not used is 0, and must be there.
        self._indices, self._weights, self._cumulative = (data if len(data) else data.new_zeros(1) for data in of_edges)
        if self.how == Draw.WEIGHTED_REPLACE:
            self._last = torch.from_numpy(last_places(on_host.indptr, on_host.weights, on_host.cumulative)).to(device)
            self._turns = (int(np.diff(on_host.indptr).max(initial=1)) - 1).bit_length()
        self._bits = torch.zeros(-(-on_host.num_nodes // 32), dtype=torch.int32, device=device)

    def sample(self, targets: np.ndarray, epoch: int) -> list[Hop[Tensor]]:
        """See ``NeighborSampler.sample``; the tensors are on the device."""
        nodes, hops = move(torch.from_numpy(targets.astype(np.int32)), self.device), list[_Padded]()
        count = torch.full((1,), len(nodes), device=self.device)
        if len(nodes):
            self._mark(nodes, count)
        for hop, fanout in enumerate(self.fanouts):
            padded, counts = self._hop(nodes, count, fanout, hop, epoch)
            hops.append((padded, counts))
            nodes, count = padded.sources, counts[2]
        self._bits.zero_()
        if not hops:
            return []
        numbers = torch.cat([number for _, counts in hops for number in counts]).view(len(hops), -1)
        return [self._cut(hop, *of_hop) for (hop, _), of_hop in zip(hops, numbers.tolist())]  # the host waits

    def _cut(self, hop: Hop[Tensor], num_targets: int, num_edges: int, num_sources: int, *loops: int) -> Hop[Tensor]:
        """The ``hop`` with these numbers."""
        assert hop.places is not None
        return Hop(
            hop.sources[:num_sources],
            hop.target_index[:num_targets],
            hop.indptr[: num_targets + 1].int(),
            hop.indices[:num_edges],
            hop.places[:num_edges] if self._keep_places else None,
            None if hop.factors is None else hop.factors[:num_edges],
            num_loops=loops[0] if loops else None,
        )

    def _hop(self, nodes: Tensor, count: Tensor, fanout: int, hop: int, epoch: int) -> _Padded:
        """Draw the edges of ``count`` of the ``nodes``, whose bits are set."""
        targets = self._rows_of(nodes, count)
        starts, places, factors = self._draw(targets, fanout, hop, epoch)
        sources_of_edges, num_edges, num_words = self._indices[places], starts[-1:], len(self._bits)
        if len(places):
            self._mark(sources_of_edges, num_edges)
        ones = torch.empty_like(self._bits)
        threads = _neighbors_gpu.THREADS
        grid = (-(-num_words // threads),)
        _neighbors_gpu.count_bits[grid](self._bits, ones, num_words, threads)
        after = ones.cumsum(0, dtype=torch.int32)
        before = after - ones

        most = min(self._num_nodes, len(nodes) + len(places))
        sources = torch.zeros(most, dtype=torch.int32, device=self.device)
        _neighbors_gpu.list_nodes[grid](self._bits, before, sources, num_words, threads)
        target_index = torch.empty_like(nodes)
        indices = torch.zeros(len(places) + PADDING, dtype=torch.int32, device=self.device)
        for ids, local, number in ((nodes, target_index, count), (sources_of_edges, indices, num_edges)):
            if len(ids):
                grid = (-(-len(ids) // threads),)
                _neighbors_gpu.rename[grid](ids, local, number, self._bits, before, threads)
        loops = (_num_loops(nodes, starts, sources_of_edges),) if self._counts_loops else ()
        counts = count, num_edges, after[-1:].long(), *loops
        return Hop(sources, target_index, starts, indices, places, factors), counts

    def _mark(self, nodes: Tensor, count: Tensor) -> None:
        """Set the bits of ``count`` of the ``nodes``."""
        threads = _neighbors_gpu.THREADS
        _neighbors_gpu.mark[(-(-len(nodes) // threads),)](nodes, count, self._bits, threads)

    def _rows_of(self, nodes: Tensor, count: Tensor) -> _Targets:
        first = self._indptr[nodes]
        degree = self._indptr[nodes + 1] - first
        behind = torch.arange(len(nodes), device=self.device) >= count
        return _Targets(nodes, count, first, degree.masked_fill(behind, 0))

    def _draw(self, targets: _Targets, fanout: int, hop: int, epoch: int) -> EdgePlaces:
        if fanout == ALL:
            starts, places, _ = self._all_edges(targets)
            return starts, places, torch.ones_like(places, dtype=torch.float64) if self.how.weighted else None
        if self.how == Draw.WEIGHTED_REPLACE:
            return self._by_weight_replaced(targets, fanout, hop, epoch)
        if self.how == Draw.WEIGHTED:
            return self._by_weight(targets, fanout, hop, epoch)
        replace, most = self.how == Draw.UNIFORM_REPLACE, len(targets.nodes) * fanout
        starts = _running((targets.degree > 0) * fanout if replace else targets.degree.clamp(max=fanout))
        places = torch.zeros(most if replace else min(most, self._num_edges), dtype=torch.int64, device=self.device)
        if len(places):
            key = _philox_gpu.signed(self._key[0] | self._key[1] << 32)
            rows = self._indptr, targets.nodes, starts, places, targets.count
            threads = _neighbors_gpu.THREADS
            grid = (-(-len(targets.nodes) // threads),)
            _neighbors_gpu.draw[grid](*rows, fanout, hop, epoch & LOW, key, replace, threads)
        return starts, places, None

    def _by_weight_replaced(self, targets: _Targets, fanout: int, hop: int, epoch: int) -> EdgePlaces:
        """Draw from the running sums of each row; see ``_neighbors_cpu._draw_weighted``.

        A drawn place is at most the last one with a positive weight, to which the host goes back from the end of the
        row where rounding has carried it there.
        """
        last = self._last[targets.nodes]
        is_drawn = (last >= 0) & (targets.degree > 0)
        starts = _running(is_drawn * fanout)
        draw, rows = torch.arange(fanout, device=self.device), is_drawn[:, None].expand(-1, fanout)
        low, high = torch.where(rows, targets.first[:, None], 0), torch.where(rows, last[:, None], 0)
        total = self._cumulative[high]
        wanted = self._units(targets.nodes, draw, hop, epoch) * total
        for _ in range(self._turns):  # the first place whose running sum is above the wanted one
            middle = (low + high) // 2
            above = self._cumulative[middle] > wanted
            low, high = torch.where(above, low, middle + 1).minimum(high), torch.where(above, middle, high)
        factors = total / (self._weights[low] * fanout)
        edge = torch.where(rows, starts[:-1, None] + draw, rows.numel())
        return starts, _scatter(low, edge, rows.numel()), _scatter(factors, edge, rows.numel())

    def _by_weight(self, targets: _Targets, fanout: int, hop: int, epoch: int) -> EdgePlaces:
        """The edges with the smallest keys Exp(1) / weight; see ``_neighbors_cpu._draw_weighted``."""
        starts, places, row = self._all_edges(targets)
        weight, whole = self._weights[places], targets.degree[row] <= fanout
        number = places - targets.first[row]
        key = -self._units(targets.nodes[row], number[:, None], hop, epoch)[:, 0].log() / weight
        key = torch.where(whole, torch.zeros_like(key), torch.where(weight > 0, key, torch.inf))
        order = torch.sort(key, stable=True).indices
        order = order[torch.sort(row[order], stable=True).indices]  # by row, then by key
        place_in_row = torch.empty_like(order)
        place_in_row[order] = torch.arange(len(order), device=self.device) - starts[row[order]]
        won = whole | ((place_in_row < fanout) & (weight > 0))
        num_rows, is_positive = len(targets.nodes), (weight > 0).long()
        num_positive = torch.zeros_like(targets.degree).index_add_(0, row, is_positive)
        # The smallest key that has not won, where there is one.
        losing = ~whole & (place_in_row == fanout) & (weight > 0)
        threshold = _scatter(key, torch.where(losing, row, num_rows), num_rows, torch.inf)
        factor = -1 / torch.expm1(-weight * threshold[row])
        factor = torch.where(whole | (num_positive[row] <= fanout), 1.0, factor)
        most = min(len(places), num_rows * fanout)
        edge = torch.where(won, won.cumsum(0) - 1, most)
        counts = torch.zeros_like(targets.degree).index_add_(0, row, won.long())
        return _running(counts), _scatter(places, edge, most), _scatter(factor, edge, most)

    def _all_edges(self, targets: _Targets) -> tuple[Tensor, Tensor, Tensor]:
        """Where each row's edges begin, and the places and rows of all edges of all rows. The host waits."""
        starts = _running(targets.degree)
        num_edges = int(starts[-1])
        row = torch.arange(len(targets.nodes), device=self.device)
        row = row.repeat_interleave(targets.degree, output_size=num_edges)
        return starts, torch.arange(num_edges, device=self.device) + (targets.first - starts[:-1])[row], row

    def _units(self, nodes: Tensor, numbers: Tensor, hop: int, epoch: int) -> Tensor:
        """Float64 numbers in (0, 1) for each of (m,) ``nodes`` and the (k,) or (m, k) ``numbers`` of its draws."""
        constant = [torch.full((1, 1), word, device=self.device) for word in (hop, epoch & LOW)]
        numbers = numbers.expand(len(nodes), numbers.shape[-1])
        words = rounds((nodes.long()[:, None], numbers >> 1, *constant), self._key)
        odd = (numbers & 1).bool()
        high, low = torch.where(odd, words[2], words[0]), torch.where(odd, words[3], words[1])
        return ((high << 21 ^ low >> 11).double() + 0.5) * 2.0**-53


def _running(counts: Tensor) -> Tensor:
    """(n + 1,) int64 running sums of (n,) ``counts``, from 0."""
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def _scatter(values: Tensor, places: Tensor, num_places: int, fill: float = 0) -> Tensor:
    """(num_places,) ``values`` at their ``places``, and ``fill`` elsewhere; a value whose place is ``num_places`` is
    left out."""
    scattered = values.new_full((num_places + 1,), fill)
    scattered[places] = values
    return scattered[:num_places]


def _num_loops(nodes: Tensor, starts: Tensor, sources_of_edges: Tensor) -> Tensor:
    """(1,) int64, how many edges lead from a target to itself. Ids are GLOBAL, tensors as long as their capacity."""
    most = len(sources_of_edges)
    lengths = torch.cat([starts.diff(), most - starts[-1:]])  # what is behind the last edge is in a row of its own
    row = torch.arange(len(lengths), device=nodes.device).repeat_interleave(lengths, output_size=most)
    return (torch.cat([nodes, nodes.new_full((1,), -1)])[row] == sources_of_edges).sum()[None]


def last_places(indptr: np.ndarray, weights: np.ndarray, cumulative: np.ndarray) -> np.ndarray:
    """(n,) int64, the place of the last positive weight of each row; -1: the sum of its weights is 0."""
    positive = np.flatnonzero(weights > 0)
    last = np.concatenate([[-1], positive])[np.searchsorted(positive, indptr[1:])]
    has_weight = last >= indptr[:-1]
    has_weight[has_weight] = cumulative[last[has_weight]] > 0
    return np.where(has_weight, last, -1)
