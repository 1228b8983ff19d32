"""What a GPU needs is known before the first epoch, and too much is an error. CPU ranks stand for those of GPUs."""

import logging
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch

from fullgnn.config import Config
from fullgnn.costs import auto
from fullgnn.costs.auto import BLOCKS, BUFFERS, CUDA, EVALUATION, NCCL, PARTS, STEP, MemoryNeed, memory_need
from fullgnn.costs.statistics import GraphStatistics, estimated_job
from fullgnn.distributed import World
from fullgnn.engine import fit, run, set_up
from fullgnn.engine.run import with_supported_optimizations
from fullgnn.engine.step_runner import StepRunner
from fullgnn.errors import ConfigError
from fullgnn.graph import Graph, load_dataset
from fullgnn.telemetry.meter import Meter
from tests.cases import config, layout_overrides

DATASET = [
    "dataset=synthetic", "dataset.num_nodes=4001", "dataset.num_edges=40001", "dataset.num_features=40",
    "dataset.num_classes=7",
]  # fmt: skip
TRAINING = ["train.epochs=2", "train.eval_every=0", "scheme.fetch=packed", "runtime.dtype=float32"]
PLENTY = 10**12
COUNTED = (BLOCKS, STEP, BUFFERS)


def trained(world: World, cfg: Config, graph: Graph, available: int) -> dict[str, Any]:
    """What is reported on GPUs of ``available`` bytes, and the peak that a run counts, or the error."""
    needs, meter = list[MemoryNeed](), Meter(world.device)

    def noted(*args: Any) -> MemoryNeed:
        needs.append(memory_need(*args))
        return needs[-1]

    given, making = {"device_bytes": lambda world: available, "memory_need": noted}, {"wraps": run.make_scheme}
    with mock.patch.multiple(auto, **given), mock.patch.object(run, "make_scheme", **making) as made:
        try:
            job = set_up(cfg, world, meter, graph if world.rank == 0 else None, planner=auto.CostPlanner())
        except ConfigError as error:
            return {"error": str(error), "has_scheme": made.called}
    scheme: Any = job.scheme
    result = fit(StepRunner(job))
    return {
        "needs": needs,
        "peak": result.peak_tensor_bytes,
        "piece_rows": (scheme.grid.piece_rows, job.cfg.scheme["piece_rows"]),
        "loss": result.epochs[-1].loss,
    }


@pytest.fixture(scope="module")
def graph() -> Graph:
    return load_dataset(config(*DATASET).dataset)


@pytest.mark.sample(4)
@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_the_report_is_what_a_run_counts(ranks, graph: Graph, model: str) -> None:
    """Within a tenth; the run counts what the last tensors of a message happen to be freed after, too."""
    cfg = config(*layout_overrides(1), f"model={model}", *TRAINING)
    reports = ranks(2)(trained, cfg, graph, PLENTY)
    (need,) = reports[0]["needs"]
    assert (need.num_pieces, need.piece_rows) == (1, None) and need.fits
    counted = sum(need.bytes_of[name] for name in COUNTED)
    assert counted == pytest.approx(max(rank["peak"] for rank in reports), rel=0.1)
    assert all(need.bytes_of[name] > 0 for name in COUNTED)
    assert need.bytes_of[NCCL] == need.bytes_of[EVALUATION] == 0  # gloo, and no CUDA graph


@pytest.mark.sample(2)
def test_a_budget_cuts_the_exchange_into_pieces(ranks, graph: Graph) -> None:
    cfg = config(*layout_overrides(1), "model=gcn", *TRAINING, "model.hidden_channels=64")
    whole = ranks(2)(trained, cfg, graph, PLENTY)
    (need,) = whole[0]["needs"]
    less = need.total - need.bytes_of[BUFFERS] // 4
    pieces = ranks(2)(trained, cfg, graph, less)
    (small,) = pieces[0]["needs"]
    assert small.num_pieces > 1 and small.fits and small.total <= less
    for rank, reference in zip(pieces, whole):
        assert rank["piece_rows"] == (small.piece_rows, small.piece_rows)
        assert rank["loss"] == pytest.approx(reference["loss"], rel=1e-5)
        assert rank["peak"] < reference["peak"]


def test_too_much_is_an_error_on_every_rank_before_anything_is_sharded(ranks, graph: Graph) -> None:
    cfg = config(*layout_overrides(1), "model=gcn", *TRAINING)
    first, second = ranks(2)(trained, cfg, graph, 10**6)
    assert first == second and not first["has_scheme"]
    for words in ("does not fit into a GPU", "of 1.00 MB", BLOCKS, "runtime.nproc", "partition=metis"):
        assert words in first["error"]
    assert "\n" not in first["error"]


def test_a_gpu_is_asked_and_a_cpu_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    world: Any = SimpleNamespace(device=torch.device("cpu"), ranks_per_device=2)
    assert auto.device_bytes(world) is None
    world.device = torch.device("cuda", 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=80 * 10**9))
    assert auto.device_bytes(world) == 40 * 10**9  # two ranks share a GPU


@pytest.mark.sample(2)
def test_what_only_a_gpu_needs_is_estimated() -> None:
    cfg = with_supported_optimizations(config("model=gcn", "scheme=1.5d", "scheme.fetch=packed", "model.num_layers=3"))
    job = estimated_job(cfg, 4, GraphStatistics(12_000, 60_000, 100, 47, 6_000))
    world: Any = SimpleNamespace(size=4, device=torch.device("cuda"), backend="nccl")
    need = memory_need(job, world, cfg.runtime, PLENTY)
    assert need.bytes_of[NCCL] == 2 * 400 << 20  # all ranks, and the replicas
    assert need.bytes_of[CUDA] and need.bytes_of[EVALUATION] and 0 < need.bytes_of[PARTS] <= 128 << 20
    eager = memory_need(job, world, replace(cfg.runtime, cuda_graph="never"), PLENTY)
    assert eager.bytes_of[EVALUATION] == 0
    assert all(f"{name} " in need.text() for name in need.bytes_of)


def test_an_evaluation_beside_a_graph_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    cfg, world = config(), SimpleNamespace(size=1)
    bytes_of = {BLOCKS: 10, STEP: 20, BUFFERS: 0, CUDA: 1, NCCL: 0, EVALUATION: 9, PARTS: 0}
    with caplog.at_level(logging.WARNING):
        auto.advise(MemoryNeed(bytes_of, 31, 1, None), cfg, world)  # type: ignore[arg-type]
    assert "runtime.cuda_graph=never" in caplog.text


def test_a_run_that_does_not_fit_is_refused_unless_a_key_lets_it_start(caplog: pytest.LogCaptureFixture) -> None:
    need, world = MemoryNeed({BLOCKS: 10, STEP: 30, EVALUATION: 0}, 30, 1, None), SimpleNamespace(size=1)
    with pytest.raises(
        ConfigError, match="does not fit into a GPU, 40 B of 30 B.*runtime.check_memory=false starts it"
    ):
        auto.advise(need, config(), world)  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING):
        auto.advise(need, config("runtime.check_memory=false"), world)  # type: ignore[arg-type]
    assert "does not fit into a GPU, 40 B of 30 B" in caplog.text and "it starts all the same" in caplog.text


def test_an_input_on_the_host_is_not_counted() -> None:
    world: Any = SimpleNamespace(size=1, device=torch.device("cpu"), backend="gloo")
    graph, held = GraphStatistics(400_000, 400_000, 400, 7, 4_000), {}
    for choice in ("always", "never"):
        cfg = with_supported_optimizations(
            config("model=gcn", "model.input_dropout=0", f"optimizations.offload={choice}", "model.hidden_channels=8")
        )
        held[choice] = memory_need(estimated_job(cfg, 1, graph), world, cfg.runtime, PLENTY).bytes_of[STEP]
    chunks = 2 * (32 << 20)
    assert held["never"] - held["always"] == pytest.approx(400_000 * 400 * 4 - chunks, rel=0.01)
