"""A training by several ranks that share one GPU, over gloo, has the losses of the same training on one rank.

Where no GPU is visible, two ranks train a tiny graph on the CPU.
"""

import pytest

pytest.importorskip("hydra")

from fullgnn.config import Config
from fullgnn.distributed import World
from fullgnn.engine import StepRunner, replay_for, set_up
from fullgnn.telemetry.meter import Meter
from tests.cases import config, layout_overrides
from tests.triton_device import DEVICE

BACKEND, SIZES, KERNEL, SCALE = "gloo", (2,), "torch", 4e-4
if DEVICE.type == "cuda":
    BACKEND, SIZES, KERNEL, SCALE = "gloo-cuda", (2, 4), "csr", 0.008  # 20,000 nodes and 800,000 edges
TOLERANCE = 1e-5
EPOCHS = 8


def losses(world: World, cfg: Config) -> list[float]:
    epochs = StepRunner(set_up(cfg, world, Meter(world.device)), replay_for(cfg.runtime.cuda_graph, world))
    return [epochs(epoch).results.read()[0] for epoch in range(1, EPOCHS + 1)]


@pytest.mark.parametrize("ranks", [BACKEND], indirect=True)
@pytest.mark.parametrize("size", SIZES)
def test_several_ranks_have_the_losses_of_one(ranks, size: int) -> None:
    """The training has dropout and every optimization, and is not replayed; its kernel does not depend on timing."""
    graph = ["dataset=products-like", f"dataset.scale={SCALE}", f"kernel={KERNEL}", "runtime.dtype=float32"]
    model = ["experiment=full", "model.num_layers=2", "model.hidden_channels=64", "model.dropout=0.5"]
    training = ["optimizer.lr=0.01", "runtime.cuda_graph=never", *layout_overrides(1)]
    cfg = config(*graph, *model, *training)
    (alone,) = ranks(1)(losses, cfg)
    assert alone[-1] < alone[0]
    for of_rank in ranks(size)(losses, cfg):
        assert of_rank == pytest.approx(alone, rel=TOLERANCE)
