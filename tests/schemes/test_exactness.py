"""Every layout computes the same mathematics: elementwise comparison with the dense float64 oracle."""

import pytest

from fullgnn.config import Config
from tests.cases import LAYOUTS, config, layout_overrides
from tests.schemes.exactness import CASE, SHORT, some_kinds
from tests.schemes.training import (
    assert_one_step_is_exact,
    assert_training_is_exact,
    difference,
    expected_step,
    expected_training,
    in_lines,
    one_step,
    one_step_compiled,
    one_step_in_triton,
)
from tests.triton_device import needs_triton
from tests.variants import PRESETS, preset_overrides


def case(replication: int, *overrides: str) -> Config:
    return config(*layout_overrides(replication), *CASE, *overrides)


@pytest.mark.sample(3)
@pytest.mark.parametrize(("world_size", "replication"), LAYOUTS)
def test_logits_loss_and_gradients_equal_the_oracle(ranks, world_size: int, replication: int, every_case) -> None:
    choices = [("row", "shuffle"), ("sym", "metis"), ("sym", "none"), ("none", "rcm")]
    number = LAYOUTS.index((world_size, replication))
    for normalization, order in choices if every_case else [choices[number // 2 % 2]]:
        cfg = case(replication, f"normalization={normalization}", f"reorder={order}", "reorder.cluster_size=3")
        for kind in some_kinds(number, every_case):
            assert_one_step_is_exact(ranks(world_size), cfg, kind)


@pytest.mark.sample(20)
@pytest.mark.parametrize(("world_size", "replication"), LAYOUTS)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_twenty_epochs_equal_the_oracle(ranks, world_size: int, replication: int, optimizer: str) -> None:
    cfg = case(replication, f"optimizer={optimizer}", "optimizer.lr=0.05", "train.epochs=20", "train.eval_every=7")
    turn = LAYOUTS.index((world_size, replication)) + (optimizer == "adam")
    for kind in some_kinds(turn, every_case=False):
        assert_training_is_exact(ranks(world_size), cfg, kind)


UPDATES = {
    "adamw": ["optimizer=adamw", "optimizer.weight_decay=0.3"],
    "warm-up and cosine": ["schedule=cosine", "schedule.eta_min=0.001", "schedule.warmup_epochs=4"],
    "momentum and steps": ["optimizer=sgd", "optimizer.momentum=0.9", "schedule=step", "schedule.step_size=6"],
    "clipped": ["optimizer=sgd", "train.clip_norm=0.2"],
    "no decay of biases": ["optimizer=sgd", "optimizer.weight_decay=0.3", "train.decay_biases=false"],
    "all": [
        *("optimizer=adamw", "optimizer.weight_decay=0.3", "train.decay_biases=false", "train.clip_norm=0.2"),
        *("schedule=linear", "schedule.warmup_epochs=3"),
    ],
}


@pytest.mark.sample(5)
@pytest.mark.parametrize(("world_size", "replication"), [(1, 1), (4, 2)])
@pytest.mark.parametrize("update", UPDATES)
def test_twenty_epochs_of_every_update_equal_the_oracle(ranks, world_size: int, replication: int, update: str) -> None:
    assert_training_is_exact(ranks(world_size), case(replication, *UPDATES[update], *SHORT), "directed")


def test_every_update_makes_a_difference() -> None:
    """Otherwise, the comparison with the oracle would not notice a key that has no effect."""
    expected = [expected_training(case(1, *update, *SHORT), "directed") for update in ([], ["optimizer=sgd"])]
    for update in UPDATES.values():
        arrays = expected_training(case(1, *update, *SHORT), "directed")
        assert all(difference(arrays, other) > 1e-3 for other in expected)
        expected.append(arrays)


@pytest.mark.sample(29)
@pytest.mark.parametrize(("world_size", "replication"), LAYOUTS)
@pytest.mark.parametrize("preset", PRESETS)
def test_presets_equal_the_oracle(ranks, world_size: int, replication: int, preset: str) -> None:
    overrides = [*preset_overrides(preset, replication), *CASE, "reorder.cluster_size=3"]
    turn = list(PRESETS).index(preset) + LAYOUTS.index((world_size, replication))
    for kind in some_kinds(turn, every_case=False):
        assert_one_step_is_exact(ranks(world_size), config(*overrides), kind)
    update = [f"optimizer={('sgd', 'adam')[turn % 2]}", *SHORT]
    assert_training_is_exact(ranks(world_size), config(*overrides, *update), "directed")


@pytest.mark.sample(4)
@pytest.mark.parametrize(("world_size", "replication"), [(1, 1), (3, 1), (4, 2)])
@pytest.mark.parametrize("preset", ["hetu", "full"])
def test_compiled_gradients_equal_the_oracle(
    ranks, world_size: int, replication: int, preset: str, every_case: bool
) -> None:
    """Without ``one_step_compiled``, torch would compute the weight gradients of such small graphs."""
    cfg = config(*preset_overrides(preset, replication), *CASE)
    for kind in some_kinds(world_size, every_case):
        assert_one_step_is_exact(ranks(world_size), cfg, kind, one_step_compiled)


@pytest.mark.sample(4)
@pytest.mark.parametrize(("world_size", "replication"), [(1, 1), (3, 1), (4, 2)])
@pytest.mark.parametrize("exchange", ["broadcast", "needed_rows"])
def test_rows_in_lines_as_on_a_gpu_equal_the_oracle(ranks, world_size: int, replication: int, exchange: str) -> None:
    """Both stage orders, with and without a cached A H0."""
    choices = (
        ("scheme.stage_order=diagonal", "normalization=row"),
        ("scheme.stage_order=broadcast", "model.input_dropout=0", "model.num_layers=1"),
    )
    for overrides in choices:
        shared = "scheme.shared_memory=false"  # ranks on GPUs have no shared memory
        cfg = case(replication, *overrides, f"scheme.exchange={exchange}", shared)
        for kind in ("directed", "weighted", "tiny"):
            expected = expected_step(cfg, kind)
            for arrays in ranks(world_size)(in_lines, one_step, cfg, kind):
                assert difference(arrays, expected) < 1e-11, (overrides, kind)


@pytest.mark.sample(19)
@pytest.mark.parametrize(("world_size", "replication"), LAYOUTS)
@pytest.mark.parametrize("exchange", ["broadcast", "needed_rows"])
@pytest.mark.parametrize("shared", ["true", "false"])
def test_rows_that_arrive_whole_equal_the_oracle(
    ranks, world_size: int, replication: int, exchange: str, shared: str
) -> None:
    options = ["scheme.fetch=whole", f"scheme.exchange={exchange}", f"scheme.shared_memory={shared}"]
    for split, normalization in (("true", "sym"), ("false", "row")):
        cfg = case(replication, *options, f"scheme.split_rows={split}", f"normalization={normalization}")
        for kind in ("directed", "weighted", "tiny"):
            assert_one_step_is_exact(ranks(world_size), cfg, kind)


IN_TRITON = [  # the kind of the graph, and options
    ("tiny", "kernel=torch", "optimizations.spmm_order=transform", "scheme.exchange=broadcast"),
    ("directed", "kernel=csr", "normalization=row", "optimizations.loss_rows_only=false", "scheme.exchange=broadcast"),
    ("directed", "kernel=packed", "optimizations.spmm_order=transform"),
    ("directed", "kernel=tile32", "kernel.density_threshold=0", "scheme.exchange=needed_rows"),
]


@needs_triton
@pytest.mark.sample(8)
@pytest.mark.parametrize(("world_size", "replication"), [(3, 1), (4, 2)])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-11), ("float32", 1e-5)])
def test_kernels_in_triton_equal_the_oracle(
    ranks, world_size: int, replication: int, dtype: str, tolerance: float, every_case: bool
) -> None:
    """In float32, the producer of X pre-applies the column scale, and tensor cores multiply some entries."""
    cases = IN_TRITON if every_case else IN_TRITON[:2] if dtype == "float64" else IN_TRITON[2:]
    for kind, *overrides in cases:
        cfg = case(replication, *overrides, "scheme.shared_memory=false", f"runtime.dtype={dtype}")
        assert_one_step_is_exact(ranks(world_size), cfg, kind, one_step_in_triton, tolerance)
