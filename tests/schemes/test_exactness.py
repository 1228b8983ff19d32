"""Every layout is the same mathematics: compared with the dense float64 oracle, elementwise."""

import pytest

from fullgnn.config import Config
from tests.cases import LAYOUTS, config, layout_overrides
from tests.schemes.training import assert_equal_on_all_ranks, one_step, trained
from tests.variants import PRESETS, preset_overrides

KINDS = ["symmetric", "directed", "weighted", "isolated", "tiny", "corner"]
CASE = ["model.dropout=0.4", "model.num_layers=3", "model.hidden_channels=7", "seed=3", "runtime.dtype=float64"]
SHORT = ["train.lr=0.05", "train.epochs=20", "train.eval_every=0"]


def case(replication: int, *overrides: str) -> Config:
    return config(*layout_overrides(replication), *CASE, *overrides)


@pytest.mark.parametrize(("world_size", "replication"), LAYOUTS)
def test_logits_loss_and_gradients_equal_the_oracle(ranks, world_size: int, replication: int) -> None:
    for normalization, order in (("sym", "none"), ("row", "shuffle"), ("none", "rcm"), ("sym", "metis")):
        cfg = case(replication, f"normalization={normalization}", f"reorder={order}", "reorder.cluster_size=3")
        for kind in KINDS:
            for difference in ranks(world_size)(one_step, cfg, kind):
                assert max(difference.values()) < 1e-11, (kind, normalization, order, difference)


@pytest.mark.parametrize(("world_size", "replication"), LAYOUTS)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_twenty_epochs_equal_the_oracle(ranks, world_size: int, replication: int, optimizer: str) -> None:
    cfg = case(replication, f"train.optimizer={optimizer}", "train.lr=0.05", "train.epochs=20", "train.eval_every=7")
    for kind in KINDS:
        outcomes = ranks(world_size)(trained, cfg, kind)
        assert max(difference for _, _, difference in outcomes) < 1e-9, kind
        assert_equal_on_all_ranks(outcomes)


@pytest.mark.parametrize(("world_size", "replication"), LAYOUTS)
@pytest.mark.parametrize("preset", PRESETS)
def test_presets_equal_the_oracle(ranks, world_size: int, replication: int, preset: str) -> None:
    overrides = [*preset_overrides(preset, replication), *CASE, "reorder.cluster_size=3"]
    for kind in KINDS:
        for difference in ranks(world_size)(one_step, config(*overrides), kind):
            assert max(difference.values()) < 1e-11, (kind, difference)
    for optimizer in ("sgd", "adam"):
        cfg = config(*overrides, f"train.optimizer={optimizer}", *SHORT)
        outcomes = ranks(world_size)(trained, cfg, "directed")
        assert max(difference for _, _, difference in outcomes) < 1e-9
        assert_equal_on_all_ranks(outcomes)
