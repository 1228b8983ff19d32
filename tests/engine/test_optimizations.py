"""The columns that each preset multiplies, and the optimizations that are disabled automatically."""

import logging
from dataclasses import replace

import pytest

from fullgnn.config import Config
from fullgnn.distributed import World
from fullgnn.engine import fit, make_scheme, set_up
from fullgnn.engine.optimizations import applicable
from fullgnn.engine.train_step import TrainStep
from fullgnn.models import GCN, MLP
from fullgnn.nn import GCNConv, set_spmm_order
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
    scheme = make_scheme(cfg, world, meter)
    job = set_up(cfg, world, scheme)
    return [record.cost.counts for record in fit(TrainStep(job.model, job.graph, scheme, cfg, meter), cfg.train).epochs]


def case(widths: tuple[int, int, int], replication: int, preset: str, *overrides: str) -> Config:
    features, hidden, classes = widths
    return config(
        *preset_overrides(preset, replication), "dataset=synthetic", f"dataset.num_nodes={NUM_NODES}",
        "dataset.num_edges=2200", f"dataset.num_features={features}", f"dataset.num_classes={classes}",
        "dataset.train_fraction=0.6", f"model.hidden_channels={hidden}", "train.epochs=2", *overrides,
    )  # fmt: skip


@pytest.mark.parametrize("dataset", WIDTHS)
@pytest.mark.parametrize("preset", COLUMNS)
def test_columns_and_rows_of_every_preset(ranks, preset: str, dataset: str) -> None:
    rows = 2 * NUM_TRAIN if preset == "full" else 4 * NUM_NODES
    expected = {"spmm_columns": COLUMNS[preset][dataset], "spmm_rows": rows}
    for world_size, replication in ((1, 1), (4, 2)):
        for epochs in ranks(world_size)(counts, case(WIDTHS[dataset], replication, preset)):
            assert epochs == [expected] * 2


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


@pytest.mark.parametrize(("f", "g"), [(3, 9), (9, 3), (5, 5)])
def test_spmm_order_of_a_layer(f: int, g: int) -> None:
    conv = GCNConv(f, g, generator=__import__("torch").Generator())
    assert conv._order(f, g, needs_input_gradient=True) == (f < g, min(f, g))
    for order, first in (("transform", False), ("propagate", True)):
        set_spmm_order(conv, order)
        assert conv._order(f, g, needs_input_gradient=True) == (first, g)


@pytest.mark.parametrize(
    ("model", "overrides", "off"),
    [
        (GCN(4, 2, dropout=0.5), [], ["cache_aggregation"]),
        (GCN(4, 2, dropout=0.5, input_dropout=0), [], []),
        (GCN(4, 2, dropout=0), ["optimizations.skip_input_gradient=false"], ["cache_aggregation"]),
        (MLP(4, 2, dropout=0), [], ["cache_aggregation", "loss_rows_only"]),
        (GCN(4, 2, dropout=0), ["optimizations.offload=always"], []),
        (GCN(4, 2, dropout=0.5), ["optimizations.offload=always"], ["cache_aggregation", "offload"]),
        (GCN(4, 2, dropout=0), ["optimizations.offload=always", "optimizations.cache_aggregation=false"], ["offload"]),
    ],
)
def test_what_does_not_hold_is_turned_off_with_a_line(model, overrides, off, caplog) -> None:
    caplog.set_level(logging.INFO, "fullgnn")
    optimizations = applicable(config(*overrides).optimizations, model)
    asked = config(*overrides).optimizations
    for option, when_off in (("cache_aggregation", False), ("loss_rows_only", False), ("offload", "never")):
        if option != "offload" or asked.offload == "always":
            assert getattr(optimizations, option) == (when_off if option in off else getattr(asked, option))
    assert [record.getMessage().split()[0] for record in caplog.records] == [
        f"optimizations.{option}" for option in off
    ]


def applied_work(world: World, cfg: Config) -> bool:
    scheme = make_scheme(cfg, world, Meter(world.device))
    shard = scheme.shard
    scheme.shard = lambda prepared, needs: shard(prepared, replace(needs, loss_rows=False))  # type: ignore[method-assign]
    return set_up(cfg, world, scheme).optimizations.loss_rows_only


def test_a_scheme_may_decline_loss_rows(ranks) -> None:
    assert case(WIDTHS["products"], 1, "full").optimizations.loss_rows_only
    assert ranks(2)(applied_work, case(WIDTHS["products"], 1, "full")) == [False] * 2
