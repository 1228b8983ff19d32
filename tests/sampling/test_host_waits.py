"""How often a sampled step makes the host wait for a GPU. A CPU takes the way of a GPU here."""

import pytest
import torch

pytest.importorskip("hydra")

from fullgnn.distributed import world_of_one
from fullgnn.kernels.support import gpu
from fullgnn.sampling.setup import set_up_sampled
from fullgnn.telemetry.meter import Meter
from tests.cases import dense_graph, minibatch_config
from tests.gpu_code.host_waits import HostWaits
from tests.triton_device import DEVICE, needs_triton

pytestmark = [needs_triton, pytest.mark.filterwarnings("ignore::RuntimeWarning")]  # NumPy warns of padding

CASES = {
    "sage": ("directed", ["model=sage"]),
    "sage, cached": ("directed", ["model=sage", "cache=degree", "cache.megabytes=0.0005"]),
    "sage, encoded": ("directed", ["model=sage", "codec=bfloat16"]),
    "gcn": ("weighted", ["model=gcn", "train.clip_norm=0.5"]),
    "gat": ("directed", ["model=gat"]),
    "gin": ("directed", ["model=gin"]),
}
QUICK = ("sage", "gcn")


@pytest.mark.parametrize("name", CASES)
def test_the_host_waits_once_in_a_step(
    triton_on_cpu: None, monkeypatch: pytest.MonkeyPatch, name: str, every_case: bool
) -> None:
    """For the results of the step, which are read while the next one is computed."""
    if name not in QUICK and not every_case:
        pytest.skip("with --all")
    monkeypatch.setattr(gpu, "AS_ON_GPU", True)
    kind, keys = CASES[name]
    cfg = minibatch_config("model.num_layers=3", "sampler.fanouts=[3,3,3]", "loader.batch_size=4", *keys)
    meter = Meter(DEVICE)
    with world_of_one(cfg.runtime) as world:
        training = set_up_sampled(cfg, world, meter, dense_graph(kind).graph())
        state, batches = training.state, training.loader.epoch(1)
        state.model.train()
        training.step(next(batches)).read()  # what is allocated and compiled once
        before = [parameter.clone() for parameter in state.model.parameters()]
        with HostWaits(state.tensors(), [state.gradients._stop], training.loader.tensors()) as waits:
            results = training.step(next(batches))
            assert waits.counts == {}
            (loss, _) = results.read()
    assert waits.total <= 1
    if DEVICE.type == "cpu":  # on a GPU, launches are not seen
        assert waits.num_launches >= 2 * 3
    assert 0 < loss < float("inf")
    assert any(not torch.equal(a, b) for a, b in zip(before, state.model.parameters()))
