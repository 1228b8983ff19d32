"""What the planner says of tasks that find links, against real epochs: bytes, memory, and graphs given by numbers."""

from dataclasses import replace

import numpy as np
import pytest

from fullgnn.config import Config
from fullgnn.costs.hardware import Hardware, Link
from fullgnn.costs.predict import predict, received_bytes
from fullgnn.costs.statistics import PlannedJob, counted_job, estimated_job
from fullgnn.costs.trace import trace_epoch
from fullgnn.distributed import World
from fullgnn.engine import set_up
from fullgnn.engine.run import with_supported_optimizations
from fullgnn.engine.step_runner import StepRunner
from fullgnn.errors import ConfigError, DataError
from fullgnn.graph import Graph
from fullgnn.kernels.support.trials import TensorPeak
from fullgnn.plan import load_plan
from fullgnn.prepare.source import Preparation
from fullgnn.telemetry.meter import Meter
from tests.cases import config, layout_overrides

NUM_USERS, NUM_ITEMS, NUM_PAIRS = 9000, 6000, 60000
RANKING = ["model=lightgcn", "task=link_ranking", "task.channels=32"]
PREDICTION = ["model=gcn", "model.embedding_channels=16", "model.hidden_channels=24"]
PREDICTION += ["task=link_prediction", "task.channels=32"]
CASES = [
    (2, 1, [*RANKING]),
    (3, 1, [*RANKING, "task.batch_size=9000", "scheme.shared_memory=false"]),
    (4, 2, [*RANKING, "task.batch_size=20000", "scheme.split_rows=false"]),
    (4, 2, [*PREDICTION, "task.batch_size=25000", "task.num_negatives=3", "task.test_fraction=0.2"]),
]
"""Processes, replication, and further overrides."""


def bipartite() -> Graph:
    """Users and items, some of which are in many more pairs than others."""
    rng = np.random.default_rng(3)
    users = rng.integers(0, NUM_USERS, NUM_PAIRS)
    items = (NUM_ITEMS * rng.random(NUM_PAIRS) ** 2).astype(np.int64)
    pairs = np.unique(np.stack([users, NUM_USERS + items]), axis=1)
    both = np.concatenate([pairs, pairs[::-1]], axis=1)
    return Graph.from_edge_index(both, num_nodes=NUM_USERS + NUM_ITEMS, num_users=NUM_USERS)


def one_epoch(world: World, cfg: Config) -> tuple[dict[str, int], int]:
    """The bytes that this rank receives in the second epoch, by collective, and the peak of tensors."""
    meter = Meter(world.device)
    job = set_up(cfg, world, meter, bipartite() if world.rank == 0 else None)
    runner = StepRunner(job)
    meter.take()
    peak = TensorPeak(world.device)
    with peak.watch(*job.graph.tensors(), *runner.state.tensors()):
        runner(1).cost.read()
        received = runner(2).cost.read().bytes_received
    return {name: count for name, count in received.items() if count}, peak.bytes


def case(replication: int, overrides: list[str]) -> Config:
    cfg = config(*layout_overrides(replication), "runtime.dtype=float32", *overrides)
    return with_supported_optimizations(cfg)


def counted(cfg: Config, world_size: int) -> PlannedJob:
    num_parts = world_size // cfg.scheme["replication"]
    return counted_job(cfg, world_size, Preparation(cfg, num_parts, bipartite()).in_memory())


def wire(memory_bytes: int = 1 << 34) -> Hardware:
    links = {name: Link(1e-5, 1e9) for name in ("exchange", "broadcast", "all_reduce", "shared")}
    return Hardware("wire", "made up", "cpu", 64, memory_bytes, 1 << 20, 1e10, 1e11, 1e-6, {1: 1e10}, links, None)


@pytest.mark.sample(4)
@pytest.mark.parametrize(("world_size", "replication", "overrides"), CASES)
def test_bytes_and_memory_are_those_of_the_job(ranks, world_size: int, replication: int, overrides: list[str]) -> None:
    """The rows that a step names are random, so their number is an expected one."""
    cfg = case(replication, overrides)
    real, job = ranks(world_size)(one_epoch, cfg), counted(cfg, world_size)
    planned = received_bytes(job, trace_epoch(job, 0))
    for rank, (received, _) in enumerate(real):
        of_rank = {name: int(counts.flat[rank]) for name, counts in planned.items()}
        assert received == pytest.approx({name: count for name, count in of_rank.items() if count}, rel=0.03)
        assert received["all_reduce"] == of_rank["all_reduce"]
    largest = max(peak for _, peak in real)
    assert predict(job, wire()).peak_tensor_bytes == pytest.approx(largest, rel=0.12)


def test_one_rank_receives_nothing_and_holds_what_a_step_needs(ranks) -> None:
    cfg = case(1, RANKING)
    ((received, peak),) = ranks(1)(one_epoch, cfg)
    job = counted(cfg, 1)
    assert received == received_bytes(job, trace_epoch(job, 0)) == {}
    assert predict(job, wire()).peak_tensor_bytes == pytest.approx(peak, rel=0.1)


def test_each_step_passes_over_the_whole_graph() -> None:
    whole, batched = (
        predict(counted(case(1, [*RANKING, *more]), 2), wire()) for more in ([], ["task.batch_size=10000"])
    )
    assert counted(case(1, [*RANKING, "task.batch_size=10000"]), 2).num_steps == 6
    assert batched.time_ms["spmm"] == pytest.approx(6 * whole.time_ms["spmm"])
    assert batched.time_ms["comm"] > 3 * whole.time_ms["comm"]


def test_time_follows_the_rates() -> None:
    job = counted(case(1, RANKING), 2)
    quick = predict(job, wire()).time_ms["other"]
    slow_draws = predict(job, replace(wire(), draw_s=1e-6)).time_ms["other"]
    assert slow_draws - quick == pytest.approx(1e3 * job.links.draws.max() * 9e-7, rel=0.01)


def test_a_graph_of_numbers_is_one_with_random_pairs() -> None:
    numbers = [f"num_nodes={NUM_USERS + NUM_ITEMS}", f"num_edges={2 * NUM_PAIRS}", "num_features=0"]
    numbers += [f"num_users={NUM_USERS}"]
    keys = ["model=lightgcn", "task=link_ranking", "task.channels=32", "task.batch_size=10000"]
    _, (cfg,), graph = load_plan([*numbers, *keys])
    job = estimated_job(cfg, 4, graph)
    assert job.num_steps == 6 and job.graph.num_classes == 32 and job.links.draws.sum() == NUM_PAIRS
    rng = np.random.default_rng(0)  # each block row has a quarter of the users, and of the items
    items = rng.integers(0, NUM_ITEMS, (6, NUM_PAIRS // 24, 2))
    read = sum(len(np.unique(of_step)) for of_step in items)
    assert job.links.rows.sum(axis=1) == pytest.approx(read, rel=0.02)


@pytest.mark.parametrize(
    ("keys", "error", "message"),
    [
        (["task=link_ranking", "num_classes=3"], ConfigError, "^num_classes is not read by task=link_ranking"),
        (["task=link_ranking"], DataError, "^task=link_ranking needs users and items"),
        (["task=link_ranking", "num_users=100"], ConfigError, "^num_users=100 leaves no user or no item"),
        (["num_classes=3", "num_users=10"], ConfigError, "^num_users is read by tasks that find links alone"),
        ([], ConfigError, "^num_nodes describes a graph by its numbers, and num_classes is missing"),
    ],
)
def test_numbers_that_describe_no_graph_are_refused(keys: list[str], error: type[Exception], message: str) -> None:
    model = ["model=lightgcn"] if "task=link_ranking" in keys else []
    with pytest.raises(error, match=message):
        load_plan([*model, "num_nodes=100", "num_edges=400", "num_features=8", *keys])
