"""The columns that each preset multiplies, and the optimizations that are disabled automatically."""

import logging
from dataclasses import replace
from unittest import mock

import pytest
import torch

from fullgnn.config import Config
from fullgnn.distributed import World
from fullgnn.engine import checks, fit, set_up
from fullgnn.engine.checks import applicable
from fullgnn.engine.run import with_supported_optimizations
from fullgnn.engine.step_runner import StepRunner
from fullgnn.models import GAT, GCN, GIN, MLP, NGCN, SGC
from fullgnn.schemes.one_and_half_d import OneAndHalfD
from fullgnn.telemetry.meter import Meter
from tests.cases import config
from tests.variants import preset_overrides

WIDTHS = {"reddit": (602, 128, 41), "proteins": (602, 128, 8), "products": (100, 64, 47)}
COLUMNS = {  # SpMM columns in one training step of a two-layer GCN
    "cagnet-1d": {"reddit": 899, "proteins": 866, "products": 275},
    "cagnet-1.5d": {"reddit": 899, "proteins": 866, "products": 275},
    "hetu": {"reddit": 338, "proteins": 272, "products": 222},
    "hetu-reorder": {"reddit": 338, "proteins": 272, "products": 222},
    "full": {"reddit": 82, "proteins": 16, "products": 94},
}
NUM_NODES, NUM_TRAIN = 200, 120


def counts(world: World, cfg: Config) -> list[dict[str, int]]:
    """The counts of every epoch."""
    meter = Meter(world.device)
    job = set_up(cfg, world, meter)
    return [record.cost.counts for record in fit(StepRunner(job)).epochs]


def case(widths: tuple[int, int, int], replication: int, preset: str, *overrides: str) -> Config:
    features, hidden, classes = widths
    return config(
        *preset_overrides(preset, replication), "dataset=synthetic", f"dataset.num_nodes={NUM_NODES}",
        "dataset.num_edges=2200", f"dataset.num_features={features}", f"dataset.num_classes={classes}",
        "dataset.train_fraction=0.6", f"model.hidden_channels={hidden}", "train.epochs=2", *overrides,
    )  # fmt: skip


@pytest.mark.sample(10)
@pytest.mark.parametrize("dataset", WIDTHS)
@pytest.mark.parametrize("preset", COLUMNS)
def test_columns_and_rows_of_every_preset(ranks, preset: str, dataset: str) -> None:
    rows = 2 * NUM_TRAIN if preset == "full" else 4 * NUM_NODES
    expected = {"spmm_columns": COLUMNS[preset][dataset], "spmm_rows": rows}
    for world_size, replication in ((1, 1), (4, 2)):
        for epochs in ranks(world_size)(counts, case(WIDTHS[dataset], replication, preset)):
            assert epochs == [expected] * 2


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("switch", "columns", "rows"),
    [
        ("optimizations.cache_aggregation=false", 82 + 2 * 128, 2 * NUM_TRAIN + 2 * NUM_NODES),
        ("optimizations.skip_input_gradient=false", 82 + 2 * 128, 2 * NUM_TRAIN + 2 * NUM_NODES),
        ("optimizations.loss_rows_only=false", 82, 2 * NUM_NODES),
        ("optimizations.fold_normalization=false", 82, 2 * NUM_TRAIN),
        ("model.input_dropout=0.5", 82 + 2 * 128, 2 * NUM_TRAIN + 2 * NUM_NODES),
    ],
)
def test_each_switch_alone(ranks, switch: str, columns: int, rows: int) -> None:
    (epochs,) = ranks(1)(counts, case(WIDTHS["reddit"], 1, "full", switch))
    assert epochs == [{"spmm_columns": columns, "spmm_rows": rows}] * 2


def test_the_first_layer_goes_where_forward_and_backward_together_are_least(ranks) -> None:
    """Without cache_aggregation and an input gradient, (A H) W multiplies 100 columns once, A (H W) 64 twice."""
    (epochs,) = ranks(1)(counts, case(WIDTHS["products"], 1, "full", "optimizations.cache_aggregation=false"))
    assert epochs[0]["spmm_columns"] == 100 + 94


ASKED = ["optimizations.cache_aggregation=true", "optimizations.loss_rows_only=true"]
DROPS = "dropout changes the features in every epoch; set model.input_dropout=0"
TRAINED = "the model trains a vector for each node; leave out model.embedding_channels"
NORM = "model.norm=batch reads every row of the last layer; set model.norm=layer or null"


@pytest.fixture
def logged(caplog):
    """Returns the lines that ``applicable`` has logged; a line is logged once in a process."""
    checks.log_once.cache_clear()
    caplog.set_level(logging.INFO, "fullgnn")
    return lambda: [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize(
    ("model", "overrides", "off"),
    [
        (GCN(4, 2, dropout=0.5), [], {"cache_aggregation": DROPS}),
        (GCN(4, 2, dropout=0.5, input_dropout=0), [], {}),
        (
            GCN(4, 2, dropout=0),
            ["optimizations.skip_input_gradient=false"],
            {"cache_aggregation": "optimizations.skip_input_gradient=false asks for the gradient of the features; set"},
        ),
        (GCN(4, 2, dropout=0, residual=True), [], {}),
        (GCN(4, 2, embedding_channels=3), [], {"cache_aggregation": TRAINED}),
        (SGC(4, 2, embedding_channels=3), [], {"cache_aggregation": TRAINED}),
        (SGC(4, 2), [], {}),
        (NGCN(4, 2, dropout=0.5), [], {"cache_aggregation": DROPS}),
        (GIN(4, 2, dropout=0, norm="batch"), [], {"loss_rows_only": NORM}),
        (GCN(4, 2, dropout=0, norm="batch", jumping_knowledge="cat"), [], {"loss_rows_only": NORM}),
        (GAT(4, 2, dropout=0), [], {"cache_aggregation": "the first layer of GAT reads more than products of A with "}),
        (
            MLP(4, 2, dropout=0),
            [],
            {
                "cache_aggregation": "the first layer of MLP reads more than products of A with the features; leave",
                "loss_rows_only": "an MLP computes the output of every node; leave this key at auto",
            },
        ),
        (torch.nn.Linear(4, 2), [], {"cache_aggregation": "the first", "loss_rows_only": "Linear computes"}),
    ],
)
def test_what_a_model_does_not_support_is_off_and_told_only_if_it_was_asked_for(model, overrides, off, logged) -> None:
    by_default = config(*overrides).optimizations
    assert by_default.cache_aggregation == by_default.loss_rows_only == "auto"
    applied = applicable(by_default, model)
    assert logged() == []
    for option in ("cache_aggregation", "loss_rows_only"):
        assert getattr(applied, option) is (option not in off)
    for _ in range(2):  # the planner asks before the run does
        assert applicable(config(*ASKED, *overrides).optimizations, model) == applied
    lines = [f"optimizations.{option} is disabled: {reason}" for option, reason in off.items()]
    assert len(logged()) == len(lines) and all(map(str.startswith, logged(), lines)), logged()
    assert applicable(applied, model) == applied


@pytest.mark.parametrize(
    ("model", "overrides", "why"),
    [
        (GCN(4, 2, dropout=0), [], None),
        (GCN(4, 2, dropout=0.5), [], DROPS),
        (GCN(4, 2, dropout=0), ["optimizations.cache_aggregation=false"], "set optimizations.cache_aggregation=auto"),
    ],
)
def test_an_offload_that_was_asked_for_needs_a_cached_product(model, overrides, why, logged) -> None:
    assert applicable(config(*overrides).optimizations, model).offload == ("never" if why else "auto")
    assert logged() == []
    applied = applicable(config("optimizations.offload=always", *overrides).optimizations, model)
    line = "optimizations.offload is disabled: only A H0 can stay on the host, and it is not cached: "
    assert (applied.offload, logged()) == (("never", [line + why]) if why else ("always", []))


def test_a_task_may_read_every_row(logged) -> None:
    cfg = config("optimizations.loss_rows_only=true").optimizations
    assert applicable(cfg, GCN(4, 2, dropout=0), every_row=True).loss_rows_only is False
    line = "optimizations.loss_rows_only is disabled: the task reads the output of every node; leave this key at auto"
    assert logged() == [line]


@pytest.mark.parametrize(
    "overrides", [[], ["model=mlp"], ["model=gat"], ["dataset=lastfm", "task=link_ranking", "model=lightgcn"]]
)
def test_a_default_run_says_nothing_of_optimizations(overrides, logged) -> None:
    with_supported_optimizations(config(*overrides))
    assert logged() == []


def applied_work(world: World, cfg: Config) -> bool:
    with mock.patch.object(OneAndHalfD, "offers", replace(OneAndHalfD.offers, loss_rows=False)):
        job = set_up(cfg, world, Meter(world.device))
    return bool(job.optimizations.loss_rows_only) or job.graph.loss_block is not None


def test_a_scheme_may_decline_loss_rows(ranks) -> None:
    assert case(WIDTHS["products"], 1, "full").optimizations.loss_rows_only
    assert ranks(2)(applied_work, case(WIDTHS["products"], 1, "full")) == [False] * 2
