"""No option, alone or with any other option, changes the result."""

from itertools import combinations
from typing import Any

import pytest

from fullgnn.config import Config
from fullgnn.graph import Graph, load_dataset
from tests.cases import config, layout_overrides
from tests.schemes.exactness import CASE, SHORT, some_kinds
from tests.schemes.invariance import DATASET, TOLERANCE, TRAINING
from tests.schemes.training import (
    assert_equal_on_all_ranks,
    assert_one_step_is_exact,
    assert_training_is_exact,
    difference,
    expected_training,
    final_losses,
    trained,
)
from tests.variants import ALL_OFF, OPTIONS, PAIRWISE, pairwise_overrides

ROWS = pytest.mark.parametrize("row", PAIRWISE, ids=range(len(PAIRWISE)))
LAYOUTS = OPTIONS["layout"]


def test_the_table_covers_every_pair() -> None:
    for (i, first), (j, second) in combinations(enumerate(OPTIONS.values()), 2):
        met = {(row[i], row[j]) for row in PAIRWISE}
        assert met == {(a, b) for a in first for b in second}, (list(OPTIONS)[i], list(OPTIONS)[j])


@pytest.mark.sample(10)
@ROWS
def test_one_step_equals_the_oracle(ranks, row: list[Any], every_case: bool) -> None:
    world_size, replication = row[-1]
    overrides = [*layout_overrides(replication), *pairwise_overrides(row), *CASE, "reorder.cluster_size=3"]
    for kind in some_kinds(PAIRWISE.index(row), every_case):
        assert_one_step_is_exact(ranks(world_size), config(*overrides), kind)


@pytest.mark.sample(14)
@ROWS
def test_twenty_epochs_equal_the_oracle(ranks, row: list[Any]) -> None:
    world_size, replication = row[-1]
    overrides = [*layout_overrides(replication), *pairwise_overrides(row), *CASE, "reorder.cluster_size=3"]
    for optimizer, kind in (("sgd", "weighted"), ("adam", "symmetric")):
        assert_training_is_exact(ranks(world_size), config(*overrides, f"optimizer={optimizer}", *SHORT), kind)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return load_dataset(config(*DATASET).dataset)


def curve_case(dtype: str, *overrides: str) -> Config:
    return config(*overrides, *TRAINING, f"runtime.dtype={dtype}", "optimizer.lr=0.01")


@pytest.fixture(scope="module")
def plain(ranks, graph: Graph) -> dict[str, list[float]]:
    """Final loss on one process with all options off, by dtype."""
    off = [f"{key}={value}" for key, value in zip(OPTIONS, ALL_OFF) if key not in ("normalization", "kernel")]
    overrides = [*off, "kernel=torch", "model.input_dropout=0"]
    return {dtype: ranks(1)(final_losses, [curve_case(dtype, *overrides)], graph)[0] for dtype in TOLERANCE}


@pytest.mark.sample(16)
@pytest.mark.parametrize(("world_size", "replication"), LAYOUTS)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_loss_after_50_epochs(
    ranks, graph: Graph, plain, world_size: int, replication: int, dtype: str, every_case: bool
) -> None:
    """Every configuration of ``PAIRWISE`` with ``normalization=sym`` reaches the loss of ``plain``."""
    rows = [pairwise_overrides(row) for row in PAIRWISE if row[-2] == "sym"]
    if not every_case:  # other rows on other layouts
        rows = rows[LAYOUTS.index((world_size, replication)) :: len(LAYOUTS)]
    cases = [curve_case(dtype, *layout_overrides(replication), *row) for row in rows]
    for losses in ranks(world_size)(final_losses, cases, graph):
        assert losses == pytest.approx(plain[dtype] * len(rows), rel=TOLERANCE[dtype], abs=0)


@pytest.mark.sample(2)
@pytest.mark.parametrize("shared_memory", ["true", "false"])
@pytest.mark.parametrize("stage_order", ["diagonal", "broadcast"])
def test_bfloat16_on_the_wire_is_close_and_the_same_everywhere(ranks, stage_order: str, shared_memory: str) -> None:
    wire = [f"scheme.stage_order={stage_order}", f"scheme.shared_memory={shared_memory}", "scheme.wire_dtype=bfloat16"]
    cfg = config(*layout_overrides(2), *wire, *CASE, "optimizer=sgd", "optimizer.lr=0.05", "train.epochs=5")
    outcomes = ranks(4)(trained, cfg, "symmetric")
    assert_equal_on_all_ranks(outcomes)
    assert 1e-9 < difference(outcomes[0], expected_training(cfg, "symmetric")) < 1e-2  # the rounding to bfloat16
