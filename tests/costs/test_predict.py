"""Predictions: their values on machines with known answers, and the choices that follow from them."""

from dataclasses import astuple, replace

import numpy as np
import pytest
import torch

from fullgnn.config import Config
from fullgnn.costs.auto import choose
from fullgnn.costs.hardware import Hardware, Link
from fullgnn.costs.layout import Move
from fullgnn.costs.measure import Sizes, measure
from fullgnn.costs.predict import predict
from fullgnn.costs.search import MAX_RANKS, Option, Search, best
from fullgnn.costs.simulate import prepare_for, simulate
from fullgnn.costs.statistics import GraphStatistics, PlannedJob, check_plannable, counted_job, estimated_job
from fullgnn.costs.trace import SAMPLE_ROWS, Gemm, trace_epoch
from fullgnn.distributed import World, dry_world
from fullgnn.engine import fit
from fullgnn.engine.run import set_up, with_supported_optimizations
from fullgnn.engine.step_runner import StepRunner
from fullgnn.errors import ConfigError, DataError, UnsupportedError
from fullgnn.kernels.support import aligned
from fullgnn.nn import GATConv
from fullgnn.nn.contract import RowReads
from fullgnn.schemes.options import replications
from fullgnn.telemetry.meter import Meter
from tests.cases import LAYOUTS, config, dense_graph, layout_overrides

pytestmark = pytest.mark.sample(2)  # its tests take seconds, or compile kernels

ENDLESS = 10**18
GRAPH = GraphStatistics(100_000, 5_000_000, 128, 16, 60_000)


def machine(bandwidth: float = float(ENDLESS), latency_s: float = 0.0, memory_bytes: int = ENDLESS) -> Hardware:
    """A machine on which only the links take time."""
    links = {name: Link(latency_s, bandwidth) for name in ("exchange", "broadcast", "all_reduce", "shared")}
    rate = float(ENDLESS)
    return Hardware("wire", "made up", "cuda", MAX_RANKS, memory_bytes, 1, rate, rate, 1e-18, {1: rate}, links, None)


def options(hardware: Hardware, sizes: list[int], *overrides: str, graph: GraphStatistics = GRAPH) -> list[Option]:
    return search(hardware, *overrides, graph=graph).options(sizes, ["broadcast"])


def search(hardware: Hardware, *overrides: str, graph: GraphStatistics = GRAPH) -> Search:
    cfg = with_supported_optimizations(config("model.hidden_channels=64", *overrides))
    return Search([cfg], graph, lambda _: hardware)


@pytest.mark.parametrize(
    "work", ["model.input_dropout=0", "model.input_dropout=0.5", "optimizations.loss_rows_only=false"]
)
def test_two_replicas_are_first_on_eight_ranks_where_only_bandwidth_costs(work: str) -> None:
    ranked = sorted(options(machine(bandwidth=1e9), [8], work), key=lambda option: option.prediction.epoch_time_ms)
    assert [option.replication for option in ranked] == [2, 1]
    for option in ranked:
        assert option.prediction.epoch_time_ms == pytest.approx(option.prediction.time_ms["comm"], rel=1e-6)


def test_the_time_of_a_slow_wire_is_its_bytes() -> None:
    """Products that take no time hide no communication: each rank waits for all bytes that it receives."""
    (option,) = search(machine(1e9), "model.input_dropout=0").options([4], ["auto"], [1])
    received = sum(np.array(counts) for counts in option.prediction.comm_bytes_per_rank.values())
    assert option.prediction.time_ms["comm"] == pytest.approx(received.max() / 1e9 * 1e3, rel=1e-6)


def test_rows_arrive_whole_where_messages_cost_more_than_they_hide() -> None:
    """With latency alone, one round a product is faster than eight; with bandwidth alone, nothing is won. On CPUs."""
    slow, wire = (replace(hardware, device="cpu") for hardware in (machine(latency_s=1e-3), machine(bandwidth=1e9)))
    (staged,), (whole,), (free,) = (
        search(hardware, "scheme.shared_memory=false", fetch).options([8], ["auto"], [1])
        for hardware, fetch in ((slow, "scheme.fetch=stages"), (slow, "scheme.fetch=auto"), (wire, "scheme.fetch=auto"))
    )
    assert (staged.prediction.fetch, whole.prediction.fetch, free.prediction.fetch) == ("stages", "whole", "stages")
    assert "scheme.fetch=whole" in whole.overrides and "fetch" not in staged.overrides
    products = 4  # forward and backward of two layers
    saved = staged.prediction.time_ms["comm"] - whole.prediction.time_ms["comm"]
    assert saved == pytest.approx(products * 7 * 1e-3 * 1e3, rel=1e-6)
    assert whole.prediction.comm_bytes_per_rank == staged.prediction.comm_bytes_per_rank
    assert whole.prediction.peak_tensor_bytes > staged.prediction.peak_tensor_bytes
    full = replace(slow, memory_bytes=staged.prediction.peak_tensor_bytes)
    (fitting,) = search(full, "scheme.shared_memory=false").options([8], ["auto"], [1])
    assert fitting.prediction.fetch == "stages"


def test_on_gpus_rows_travel_packed_in_the_fewest_pieces_that_fit() -> None:
    """Unless a key asks for a transport of its own."""
    wire = machine(bandwidth=1e9)
    (option,) = search(wire).options([8], ["auto"], [1])
    assert option.prediction.fetch == "packed" and "fetch" not in option.overrides
    (broadcast,) = search(wire).options([8], ["broadcast"], [1])
    assert broadcast.prediction.fetch == "stages"
    less = replace(wire, memory_bytes=int(0.9 * option.prediction.peak_tensor_bytes))
    (pieces,) = search(less).options([8], ["auto"], [1])
    assert pieces.prediction.fits and not replace(option.prediction, memory_bytes=less.memory_bytes).fits
    assert pieces.prediction.comm_bytes_per_rank == option.prediction.comm_bytes_per_rank


def test_latency_is_paid_for_every_message() -> None:
    quick, slow = (
        search(machine(1e12, latency_s), "scheme.stage_order=broadcast").options([4], ["broadcast"], [1])[0]
        for latency_s in (0.0, 1.0)
    )
    products = 4  # forward and backward of two layers
    more = (slow.prediction.time_ms["comm"] - quick.prediction.time_ms["comm"]) / 1e3
    assert more == pytest.approx(products * 4 + 1)  # four broadcasts a product, one all-reduce


def test_the_best_fits_and_the_smallest_job_that_fits_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    every = options(machine(1e9), [1, 2, 4, 8])
    sizes = {option.world_size: option.prediction.peak_tensor_bytes for option in every if option.replication == 1}
    room = (sizes[2] + sizes[4]) // 2
    fitting = options(machine(1e9, memory_bytes=room), [1, 2, 4, 8])
    chosen = best(fitting)
    assert chosen is not None and chosen.world_size >= 4
    quickest = min(o.prediction.epoch_time_ms for o in fitting if o.prediction.peak_tensor_bytes <= room)
    assert chosen.prediction.epoch_time_ms == quickest
    small = machine(1e9, memory_bytes=sizes[4] * 11 // 10)
    assert best(options(small, [1, 2])) is None
    fallback = search(small).smallest_that_fits(beyond=2)
    assert fallback is not None and fallback.world_size == 4
    monkeypatch.setattr("fullgnn.costs.search.MAX_RANKS", 16)
    assert search(machine(memory_bytes=1)).smallest_that_fits(beyond=4) is None
    one_machine = replace(machine(memory_bytes=1), ranks_per_node=4)
    assert search(one_machine).smallest_that_fits(beyond=2) is None


def test_auto_takes_the_lowest_time_that_fits_else_the_smallest(caplog: pytest.LogCaptureFixture) -> None:
    every = options(machine(1e9), [8])
    by_time = sorted(every, key=lambda option: option.prediction.epoch_time_ms)
    assert choose(every) is by_time[0]
    first = by_time[0].prediction
    too_large = replace(by_time[0], prediction=replace(first, memory_bytes=first.peak_tensor_bytes - 1))
    assert choose([too_large, *by_time[1:]]) is by_time[1]
    nothing = [replace(option, prediction=replace(option.prediction, memory_bytes=1)) for option in every]
    smallest = min(nothing, key=lambda option: option.prediction.peak_tensor_bytes)
    assert choose(nothing) is smallest
    assert "nothing fits" in caplog.text


def test_compute_follows_the_rates() -> None:
    """Half the gather rate doubles the SpMM time, half the arithmetic rate doubles the dense time."""
    base = replace(machine(), gather={1: 1e9}, gemm_flops_per_s=1e6)
    slow = replace(base, gather={1: 5e8}, gemm_flops_per_s=5e5)
    (quick,), (half,) = (options(hardware, [1]) for hardware in (base, slow))
    for phase in ("spmm", "dense"):
        assert half.prediction.time_ms[phase] == pytest.approx(2 * quick.prediction.time_ms[phase], rel=1e-3)
    trained = 1e9 / GRAPH.nnz / 4  # columns per second in products with all rows
    assert quick.prediction.time_ms["spmm"] > 1e3 * 16 / trained


def test_locality_moves_reads_to_the_fast_rate() -> None:
    hardware = replace(machine(), gather={1: 4e9, 1_000: 1e9})
    graphs = (replace(GRAPH, locality=share) for share in (0.0, 1.0))
    (far,), (near,) = (options(hardware, [1], graph=graph) for graph in graphs)
    assert far.prediction.time_ms["spmm"] == pytest.approx(4 * near.prediction.time_ms["spmm"], rel=1e-3)


def test_the_traced_products_are_those_of_the_layers() -> None:
    cfg = with_supported_optimizations(
        config("model.hidden_channels=64", "model.input_dropout=0", "optimizations.loss_rows_only=false")
    )
    trace = trace_epoch(estimated_job(cfg, 1, GRAPH), 0)
    n = GRAPH.num_nodes
    columns = [(product.name, product.reads.sources) for product in trace.products]
    assert columns == [("adj", 16), ("adj_t", 16)]  # A @ H0 is computed once, in the set-up
    expected = [Gemm(n, 128, 64), Gemm(n, 64, 16), Gemm(64, n, 16), Gemm(n, 16, 64), Gemm(128, n, 64)]
    assert sorted(trace.gemms, key=repr) == sorted(expected, key=repr)
    assert trace.num_parameters == 128 * 64 + 64 + 64 * 16 + 16


EDGE_MODELS = {
    "gat": ["model=gat"],
    "gatv2": ["model=gatv2"],
    "maximum": ["model=sage", "model.aggregation=max", "model.hidden_channels=32"],
}
EDGE_GRAPH = replace(GRAPH, num_classes=41)
"""Its shapes of attention are those of other tests, so that fewer loops are compiled."""


@pytest.mark.sample(6)
@pytest.mark.parametrize("model", EDGE_MODELS)
def test_the_passes_over_edges_are_those_of_the_layers(model: str) -> None:
    """Two layers with heads of 8 x 8 and 1 x 41 columns; with the maximum, of 128 and 32, whose features need no
    gradient."""
    n = GRAPH.num_nodes
    cfg = with_supported_optimizations(config(*EDGE_MODELS[model]))
    trace = trace_epoch(estimated_job(cfg, 2, EDGE_GRAPH), 0)

    expected = {
        "gat": [("adj", 72, 0, 0), ("loss", 42, 0, 0), ("loss", 42, 45, 0), ("adj", 72, 96, 0)],
        "gatv2": [("adj", 64, 0, 0), ("loss", 41, 0, 0), ("loss", 41, 85, 0), ("adj", 64, 152, 0)],
        "maximum": [("adj", 128, 0, 0), ("loss", 32, 0, 0), ("loss", 0, 0, 32)],
    }
    over_edges = [(row_pass.name, row_pass.reads) for row_pass in trace.passes if not row_pass.is_product]
    assert [(name, *astuple(reads)) for name, reads in over_edges if reads != RowReads()] == expected[model]
    assert sorted(trace.transposed) == ([] if model == "maximum" else ["adj", "loss"])
    if model == "gat":
        assert Gemm(n // 2, 128, 80) in trace.gemms and trace.products == []


def test_what_the_planner_does_not_count_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    check_plannable(config("model=gat"))
    check_plannable(config("model=lightgcn", "task=link_ranking"))
    contract = GATConv.contract
    monkeypatch.setattr(GATConv, "contract", lambda layer: replace(contract(layer), edge_reads=None))
    with pytest.raises(UnsupportedError, match="^model=gat reads edges in GATConv, which does not tell the planner"):
        check_plannable(config("model=gat"))


def test_trainable_vectors_of_nodes_lie_on_their_ranks() -> None:
    """Each takes four numbers: its value, its gradient and two moments. They are updated, and not summed over ranks."""
    width, runs = 64, ([], ["model.embedding_channels=64"])
    hardware = replace(machine(), copy_bytes_per_s=1e9)
    plain, with_vectors = (
        search(hardware, "model.input_dropout=0.5", *run).options([4], ["broadcast"], [1])[0].prediction for run in runs
    )
    rows, num_weights = GRAPH.num_nodes // 4, width * 64
    more = with_vectors.peak_tensor_bytes - plain.peak_tensor_bytes
    assert more > 4 * 4 * rows * width
    of_weights = 2 * 3 * num_weights * 4 // 4  # of the first layer, which is wider
    received = [prediction.comm_bytes_per_epoch["all_reduce"] for prediction in (plain, with_vectors)]
    assert received[1] - received[0] == of_weights
    updated_ms = with_vectors.time_ms["other"] - plain.time_ms["other"]
    assert updated_ms == pytest.approx(7 * 4 * (rows * width + num_weights) / 1e9 * 1e3, rel=1e-3)


@pytest.mark.sample(4)
def test_passes_over_edges_follow_their_own_rate() -> None:
    """Without a measured rate, that of products counts."""
    gat = [*EDGE_MODELS["gat"], "model.hidden_channels=8"]
    slow = replace(machine(), gather={1: 1e9})
    half = replace(slow, edge_gather={1: 5e8})
    (measured,), (halved,) = (options(hardware, [1], *gat, graph=EDGE_GRAPH) for hardware in (slow, half))
    assert halved.prediction.time_ms["spmm"] == pytest.approx(2 * measured.prediction.time_ms["spmm"], rel=1e-3)
    trained = GRAPH.nnz * 4 * (72 + 72 + 96) / 1e9  # by the first layer
    assert trained < measured.prediction.time_ms["spmm"] / 1e3 < 2 * trained


def synthetic(num_nodes: int, num_edges: int, num_features: int, *overrides: str) -> Config:
    sizes = {"num_nodes": num_nodes, "num_edges": num_edges, "num_features": num_features}
    dataset = ("dataset=synthetic", *(f"dataset.{key}={number}" for key, number in sizes.items()))
    return with_supported_optimizations(config(*dataset, *overrides))


def measured_and_planned(cfg: Config, world_size: int) -> tuple[int, PlannedJob]:
    """The largest peak of the ranks of a run, and its plan."""
    prepared = prepare_for(cfg, world_size)
    ranks = simulate(cfg, world_size, prepared, epochs=2)
    return max(rank.peak_tensor_bytes for rank in ranks), counted_job(cfg, world_size, prepared)


def planned_bytes(job: PlannedJob) -> int:
    return predict(job, replace(machine(), device="cpu")).peak_tensor_bytes


@pytest.mark.sample(6)
@pytest.mark.parametrize("model", EDGE_MODELS)
def test_memory_of_models_that_read_edges_is_that_of_the_run(model: str) -> None:
    cfg = synthetic(30000, 300000, 32, "dataset.num_classes=41", *EDGE_MODELS[model])
    measured, job = measured_and_planned(cfg, 2)
    assert planned_bytes(job) == pytest.approx(measured, rel=0.05)


@pytest.mark.sample(5)
@pytest.mark.parametrize(("world_size", "replication"), [(1, 1), (2, 1), (4, 2)])
@pytest.mark.parametrize("loss_rows", ["true", "false"])
def test_memory_is_that_of_the_run(world_size: int, replication: int, loss_rows: str) -> None:
    """The graph has more rows than the sampled sizes. Extrapolation from two small sizes is right within 3 %."""
    more = "model.input_dropout=0", f"optimizations.loss_rows_only={loss_rows}"
    cfg = synthetic(40000, 600000, 32, *layout_overrides(replication), *more)
    measured, job = measured_and_planned(cfg, world_size)
    assert job.graph.num_nodes / world_size > 2 * SAMPLE_ROWS
    assert planned_bytes(job) == pytest.approx(measured, rel=0.03)


@pytest.mark.sample(4)
def test_memory_counts_the_lines_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of 33 features and rows of 41 hidden features are padded to 48 numbers."""
    monkeypatch.setattr(aligned, "PADDED_DEVICES", ("cpu",))
    model = "model.hidden_channels=41", "model.num_layers=3", "model.input_dropout=0"
    cfg = synthetic(20000, 100000, 33, *model, "scheme.shared_memory=false", "scheme.exchange=broadcast")
    measured, job = measured_and_planned(cfg, 2)
    assert planned_bytes(job) == pytest.approx(measured, rel=0.03)
    monkeypatch.setattr(aligned, "PADDED_DEVICES", ())
    assert planned_bytes(job) < 0.9 * measured


@pytest.mark.parametrize("shape", [(29,), (29, 4)])
def test_the_outputs_of_a_plan_are_those_of_the_task(shape: tuple[int, ...]) -> None:
    cfg = with_supported_optimizations(config("task=node_regression"))
    graph = replace(dense_graph("symmetric").graph(), labels=np.full(shape, 0.5), num_classes=0)
    assert counted_job(cfg, 2, prepare_for(cfg, 2, graph)).graph.num_classes == (shape[1] if len(shape) > 1 else 1)
    with pytest.raises(DataError, match="^the graph has no labels"):
        counted_job(cfg, 2, prepare_for(cfg, 2, replace(graph, labels=None)))
    with pytest.raises(ConfigError, match="^the graph has no features"):
        counted_job(cfg, 2, prepare_for(cfg, 2, replace(graph, features=None)))


@pytest.mark.parametrize(("world_size", "replication"), LAYOUTS)
def test_an_estimate_counts_what_is_there(world_size: int, replication: int) -> None:
    """The estimate for a random graph has all non-zeros, and as many bytes of whole blocks as are counted."""
    cfg = with_supported_optimizations(config(*layout_overrides(replication), "scheme.exchange=broadcast"))
    prepared = prepare_for(cfg, world_size, dense_graph("symmetric").graph())
    counted = counted_job(cfg, world_size, prepared)
    estimated = estimated_job(cfg, world_size, counted.graph)
    for name in ("adj", "adj_t", "loss", "loss_t"):
        assert estimated.products[name].nnz.sum() == pytest.approx(counted.products[name].nnz.sum(), rel=0.35)
        assert counted.products[name].rank_nnz.sum() == counted.products[name].nnz.sum()
    nnz = estimated.products["adj"].nnz
    assert nnz.sum() == pytest.approx(prepared.facts.nnz(self_loops=True), abs=nnz.size)
    for move in (Move("fetch", 28, 28), Move("sum", 28, 28)):
        of = [traffic.products["adj"].bytes_received(move) for traffic in (counted, estimated)]
        for name in of[0]:  # the replicas may divide the stages differently
            assert of[0][name].sum() == pytest.approx(of[1][name].sum(), abs=28 * len(of[0][name]))


def test_the_distinct_columns_of_a_random_block() -> None:
    rng = np.random.default_rng(0)
    n, nnz = 2000, 3000
    graph = GraphStatistics(n, nnz + n, 4, 2, n)
    halo = estimated_job(config("scheme.exchange=needed_rows"), 2, graph).products["adj"].halo
    half = n // 2
    drawn = [len(np.unique(rng.integers(0, half, nnz // 4))) for _ in range(20)]
    assert halo is not None and halo[0, 1, 0] == pytest.approx(np.mean(drawn), rel=0.02)


@pytest.mark.parametrize(
    ("size", "expected"), [(1, [1]), (2, [1]), (4, [1, 2]), (8, [1, 2]), (16, [1, 2, 4]), (6, [1, 2])]
)
def test_replications_leave_every_replica_a_stage(size: int, expected: list[int]) -> None:
    assert replications(size) == expected


@pytest.mark.sample(3)
def test_time_is_about_that_of_the_run() -> None:
    """The tolerance is loose, because the machine may be busy. docs/planner.md has measurements of a quiet machine."""
    model = "model.input_dropout=0", "model.dropout=0", "model.hidden_channels=64"
    cfg = synthetic(40000, 1000000, 64, *model, "runtime.threads=1")
    torch.set_num_threads(1)
    alone = World(rank=0, size=1, local_size=1, device=torch.device("cpu"), backend="gloo", timeout_s=60)
    hardware = measure(alone, Sizes(tables=(1 << 19, 1 << 24), num_edges=500_000, num_rows=20_000, round_s=0.01))
    prepared = prepare_for(cfg, 1)
    measured = simulate(cfg, 1, prepared, epochs=4)[0].time_ms["epoch"]
    planned = predict(counted_job(cfg, 1, prepared), hardware)
    assert measured / 10 < planned.epoch_time_ms < measured * 10


def test_a_dry_rank_trains() -> None:
    """Training in a dry run of a job of one rank lowers the loss."""
    cfg = with_supported_optimizations(config("dataset=karate", "train.epochs=3", "model.input_dropout=0"))
    prepared = prepare_for(cfg, 1)
    with dry_world(cfg.runtime, 0, 1) as world:
        job = set_up(cfg, world, Meter(world.device), prepared=prepared)
        losses = [epoch.loss for epoch in fit(StepRunner(job)).epochs]
    assert losses[0] > losses[-1] and torch.isfinite(torch.tensor(losses)).all()
