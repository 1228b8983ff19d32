"""The sampler on a GPU, or in Triton's interpreter, against the one on the host."""

from collections.abc import Sequence
from functools import partial
from itertools import product

import numpy as np
import pytest
import torch

from fullgnn.errors import ConfigError
from fullgnn.kernels.support import gpu
from fullgnn.sampling.gpu_neighbors import GpuNeighborSampler, last_places
from fullgnn.sampling.hop import PADDING, Hop
from fullgnn.sampling.neighbors import ALL, SAMPLING, NeighborSampler
from fullgnn.tasks.draws import stream_key
from tests.gpu_code.host_waits import HostWaits
from tests.sampling.neighbors import SEED, chosen, random_graph, random_weights
from tests.sampling.reference import random_word, uniform
from tests.triton_device import DEVICE, needs_triton

pytestmark = needs_triton


@pytest.fixture(autouse=True)
def triton(triton_on_cpu: None) -> None:
    """Without a GPU, Triton's interpreter runs the kernels."""


WAYS: dict[str, tuple[bool, bool]] = {
    "uniform": (False, False),
    "uniform, replaced": (True, False),
    "weighted": (False, True),
    "weighted, replaced": (True, True),
}
"""``replace`` and ``weighted`` of a sampler."""


def samplers(
    num_nodes: int, mean_degree: float, fanouts: list[int], way: str, loops: bool = False
) -> tuple[NeighborSampler, GpuNeighborSampler]:
    """On the host and on the device."""
    return of_graph(*random_graph(num_nodes, mean_degree), fanouts, way, loops)


def of_graph(
    indptr: np.ndarray, indices: np.ndarray, fanouts: list[int], way: str, loops: bool = False
) -> tuple[NeighborSampler, GpuNeighborSampler]:
    """``samplers`` of a certain graph."""
    replace, by_weight = WAYS[way]
    weight = random_weights(indptr) if by_weight else None
    host = NeighborSampler(indptr, indices, fanouts, weight, replace, by_weight, SEED, keep_places=True)
    return host, GpuNeighborSampler(host, DEVICE, loops)


def check(hops: Sequence[Hop[torch.Tensor]], wanted: Sequence[Hop[np.ndarray]]) -> None:
    """Refuse hops of the device that differ from those of the host, or have no padding."""
    for hop, other in zip(hops, wanted, strict=True):
        behind = hop.indices.as_strided((PADDING,), (1,), hop.num_edges)
        assert ((behind >= 0) & (behind < max(1, len(hop.sources)))).all()
        for name in ("sources", "target_index", "indptr", "indices", "places"):
            a, b = getattr(hop, name).cpu().numpy(), getattr(other, name)
            assert a.dtype == b.dtype and np.array_equal(a, b), name
        assert (hop.factors is None) == (other.factors is None)
        if hop.factors is not None and other.factors is not None:
            np.testing.assert_allclose(hop.factors.cpu().numpy(), other.factors, rtol=1e-9)


@pytest.mark.sample(20)
@pytest.mark.parametrize("fanouts", [[3], [5, 4, 3], [ALL, 2], [2, ALL, 12], [40, 1]], ids=str)
@pytest.mark.parametrize("way", WAYS)
def test_hops_are_those_of_the_host(fanouts: list[int], way: str) -> None:
    host, device = samplers(700, 12, fanouts, way)
    targets = np.union1d(chosen(700, 40), [0, 10, 350])  # one isolated, one whose weights are 0, one that reads all
    for epoch in (1, 2**32 + 3):  # nothing of a batch is left behind for the next one
        check(device.sample(targets, epoch), host.sample(targets, epoch))


@pytest.mark.parametrize("way", WAYS)
def test_hops_that_reach_more_than_the_graph(way: str) -> None:
    """By their capacity, which is cut at the number of nodes, and at that of edges if none is drawn twice. What lies
    behind the targets names node 0, which has edges here."""
    indptr, indices = random_graph(33, 4)
    rows = np.split(indices, indptr[1:-1])[16:] + np.split(indices, indptr[1:-1])[:16]  # the one that reads all first
    starts = np.cumsum([0, *map(len, rows)])
    host, device = of_graph(starts, np.concatenate(rows), [6, 4, 9], way, loops=True)
    for targets in (np.array([17, 18]), np.array([0, 5])):  # isolated nodes; one that reads all
        wanted = host.sample(targets, 7)
        hops = device.sample(targets, 7)
        check(hops, wanted)
        for hop, other in zip(hops, wanted, strict=True):
            row = np.repeat(other.target_index, np.diff(other.indptr))
            assert hop.num_loops == (other.indices == row).sum()
            assert hop.places is not None and len(hop.sources.untyped_storage()) <= 4 * 33
            assert WAYS[way][0] or len(hop.places.untyped_storage()) <= 8 * len(indices)


@pytest.mark.parametrize("fanouts", [[2, 2], [2, 1, 1], [2, ALL]], ids=str)
@pytest.mark.parametrize("way", WAYS)
def test_the_host_waits_once_for_a_batch(way: str, fanouts: list[int]) -> None:
    """And once more in each hop that looks at all edges of its targets."""
    _, device = samplers(60, 4, fanouts, way, loops=True)
    num_whole = len(fanouts) if way == "weighted" else fanouts.count(ALL)
    with HostWaits([device._indptr, device._indices, device._weights, device._cumulative, device._bits]) as waits:
        device.sample(np.arange(0, 60, 9), 1)
    assert waits.total == 1 + num_whole and waits.counts["tolist"] == 1


def test_the_end_of_a_row_is_its_last_positive_weight() -> None:
    """Where rounding carries a draw to the end; and a row whose weights vanish beside those before it has no sum."""
    weight = np.array([0.0, 2.0, 0.0, 0.0, 0.0, 1e20, 1.0, 3.0, 0.0])
    indptr = np.array([0, 0, 4, 5, 6, 7, 9])
    total = np.cumsum(weight)
    cumulative = total - np.repeat(np.concatenate([[0.0], total])[indptr[:-1]], np.diff(indptr))
    assert last_places(indptr, weight, cumulative).tolist() == [-1, 1, -1, 5, -1, -1]
    assert last_places(indptr[:3], weight[:4], cumulative[:4]).tolist() == [-1, 1]
    assert last_places(np.zeros(3, np.int64), weight[:0], weight[:0]).tolist() == [-1, -1]


def test_every_place_of_a_long_row_is_found() -> None:
    """A search among 2^k + 1 places takes k + 1 turns."""
    host = NeighborSampler(np.array([0, 17]), np.zeros(17, np.int32), [200], np.ones(17), True, True, SEED)
    (wanted,) = host.sample(np.array([0]), 1)
    assert wanted.places is not None and {*wanted.places} == {*range(17)}
    check(GpuNeighborSampler(host, DEVICE).sample(np.array([0]), 1), [wanted])


def test_draws_at_the_end_of_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, row = np.array([1.0, 0.0, 2.0, 0.0, 0.0, 1.0]), np.array([0, 5, 6])
    host = NeighborSampler(row, np.zeros(6, np.int32), [3], weight, True, True, SEED)
    device = GpuNeighborSampler(host, DEVICE)
    monkeypatch.setattr(
        device, "_units", lambda nodes, numbers, hop, epoch: torch.ones(len(nodes), len(numbers), device=DEVICE)
    )
    (hop,) = device.sample(np.array([0, 1]), 1)
    assert hop.places is not None and hop.places.tolist() == [2, 2, 2, 5, 5, 5]


@pytest.mark.parametrize("replace", [False, True], ids=["without", "with"])
def test_refused_words_are_drawn_again(replace: bool) -> None:
    """In rows as long as these, a quarter of all words would favour a number."""
    from fullgnn.kernels.dropout._philox_gpu import signed
    from fullgnn.sampling._neighbors_gpu import THREADS, draw

    degree, num_targets, fanout, key = 2**31 - 2**29, 20, 6, stream_key(SEED, SAMPLING)
    indptr = torch.arange(num_targets + 1, device=DEVICE) * degree
    targets = torch.arange(num_targets, dtype=torch.int32, device=DEVICE)
    starts = torch.arange(num_targets + 1, device=DEVICE) * fanout
    places = torch.zeros(num_targets * fanout, dtype=torch.int64, device=DEVICE)
    packed = signed(key[0] | key[1] << 32)
    count = torch.tensor([num_targets], device=DEVICE)
    draw[(1,)](indptr, targets, starts, places, count, fanout, 2, 1, packed, replace, THREADS)
    draws = places.reshape(num_targets, fanout) - indptr[:-1, None]
    wanted = [uniform(degree, fanout, replace, partial(random_word, key, 1, 2, v)) for v in range(20)]
    assert draws.tolist() == wanted


def test_graphs_without_edges_and_batches_without_targets() -> None:
    empty = np.zeros(6, np.int64), np.empty(0, np.int32)
    for fanout, (replace, by_weight) in product((2, ALL), WAYS.values()):
        weight = np.empty(0) if by_weight else None
        host = NeighborSampler(*empty, [fanout], weight, replace, by_weight)
        for hop in GpuNeighborSampler(host, DEVICE, True).sample(np.array([1, 4]), 1):
            assert hop.sources.tolist() == [1, 4] and hop.indptr.tolist() == [0, 0, 0]
            assert hop.num_edges == hop.num_loops == 0
    for fanout, way in product((2, ALL), WAYS):
        hops = samplers(50, 4, [fanout] * 2, way, loops=True)[1].sample(np.array([]), 1)
        assert [(len(hop.sources), hop.num_targets, hop.num_edges) for hop in hops] == [(0, 0, 0)] * 2
    assert samplers(50, 4, [], "uniform")[1].sample(np.array([1]), 1) == []


def test_a_machine_without_a_gpu_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "INTERPRETED", False)
    with pytest.raises(ConfigError, match="loader.sample_on_gpu=true needs a GPU and Triton, and the run is on cpu"):
        GpuNeighborSampler(NeighborSampler(*random_graph(50, 4), [2]), torch.device("cpu"))
