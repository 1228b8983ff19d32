"""The sampler on a GPU, or in Triton's interpreter, against the one on the host."""

from functools import partial

import numpy as np
import pytest
import torch

from fullgnn.errors import ConfigError
from fullgnn.kernels.support import gpu
from fullgnn.sampling.gpu_neighbors import GpuNeighborSampler
from fullgnn.sampling.hop import PADDING
from fullgnn.sampling.neighbors import ALL, SAMPLING, NeighborSampler
from fullgnn.tasks.draws import stream_key
from tests.sampling.reference import random_word, uniform
from tests.sampling.test_neighbors import SEED, chosen, random_graph, random_weights
from tests.triton_device import DEVICE, needs_triton

pytestmark = needs_triton


@pytest.fixture(autouse=True)
def triton(triton_on_cpu: None) -> None:
    """Without a GPU, Triton's interpreter runs the kernels."""


@pytest.mark.sample(20)
@pytest.mark.parametrize("fanouts", [[3], [5, 4, 3], [ALL, 2], [2, ALL, 12], [40, 1]], ids=str)
@pytest.mark.parametrize("replace", [False, True], ids=["without", "with"])
@pytest.mark.parametrize("by_weight", [False, True], ids=["uniform", "weighted"])
def test_hops_are_those_of_the_host(fanouts: list[int], replace: bool, by_weight: bool) -> None:
    indptr, indices = random_graph(700, 12)
    weight = random_weights(indptr) if by_weight else None
    targets = np.union1d(chosen(700, 40), [0, 10, 350])  # one isolated, one whose weights are 0, one that reads all
    host = NeighborSampler(indptr, indices, fanouts, weight, replace, by_weight, SEED, keep_places=True)
    device = GpuNeighborSampler(host, DEVICE)
    for epoch in (1, 2**32 + 3):  # nothing of a batch is left behind for the next one
        found = device.sample(targets, epoch)
        for hop, wanted in zip(found, host.sample(targets, epoch), strict=True):
            assert hop.indices.untyped_storage().nbytes() >= 4 * (hop.num_edges + PADDING)
            for name in ("sources", "target_index", "indptr", "indices", "places"):
                one, other = getattr(hop, name).cpu().numpy(), getattr(wanted, name)
                assert one.dtype == other.dtype and np.array_equal(one, other), name
            if by_weight:
                assert hop.factors is not None and wanted.factors is not None
                np.testing.assert_allclose(hop.factors.cpu().numpy(), wanted.factors, rtol=1e-9)


@pytest.mark.parametrize("replace", [False, True], ids=["without", "with"])
def test_refused_words_are_drawn_again(replace: bool) -> None:
    """Of rows as long as these, a quarter of all words would favour a number."""
    from fullgnn.kernels.dropout._philox_gpu import signed
    from fullgnn.sampling._neighbors_gpu import THREADS, draw

    degree, num_targets, fanout, key = 2**31 - 2**29, 20, 6, stream_key(SEED, SAMPLING)
    indptr = torch.arange(num_targets + 1, device=DEVICE) * degree
    targets = torch.arange(num_targets, dtype=torch.int32, device=DEVICE)
    starts = torch.arange(num_targets + 1, device=DEVICE) * fanout
    places = torch.zeros(num_targets * fanout, dtype=torch.int64, device=DEVICE)
    packed = signed(key[0] | key[1] << 32)
    draw[(1,)](indptr, targets, starts, places, num_targets, fanout, 2, 1, packed, replace, THREADS)
    found = places.reshape(num_targets, fanout) - indptr[:-1, None]
    wanted = [uniform(degree, fanout, replace, partial(random_word, key, 1, 2, v)) for v in range(20)]
    assert found.tolist() == wanted


def test_graphs_without_edges_and_batches_without_targets() -> None:
    empty = np.zeros(6, np.int64), np.empty(0, np.int32)
    (hop,) = GpuNeighborSampler(NeighborSampler(*empty, [3]), DEVICE).sample(np.array([1, 4]), 1)
    assert hop.sources.tolist() == [1, 4] and hop.indptr.tolist() == [0, 0, 0] and hop.num_edges == 0
    for fanout in (2, ALL):
        hops = GpuNeighborSampler(NeighborSampler(*random_graph(50, 4), [fanout] * 2), DEVICE).sample(np.array([]), 1)
        assert [(len(hop.sources), hop.num_targets, hop.num_edges) for hop in hops] == [(0, 0, 0)] * 2


def test_a_machine_without_a_gpu_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "INTERPRETED", False)
    with pytest.raises(ConfigError, match="loader.sample_on_gpu=true needs a GPU and Triton, and the run is on cpu"):
        GpuNeighborSampler(NeighborSampler(*random_graph(50, 4), [2]), torch.device("cpu"))
