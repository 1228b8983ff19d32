"""A @ H0 on the host, multiplied in chunks of rows, gives the same training as A @ H0 on the device."""

import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fullgnn.config import Config
from fullgnn.distributed import World
from fullgnn.engine import aggregate, fit, set_up
from fullgnn.engine.step_runner import StepRunner
from fullgnn.kernels.dense import host_rows
from fullgnn.kernels.dense.host_rows import HostRows
from fullgnn.schemes.inputs import PropagatedInput
from fullgnn.telemetry.meter import Meter
from tests.cases import config, dense_graph, layout_overrides
from tests.schemes import training

LAYOUTS = [(1, 1), (2, 1), (3, 1), (4, 2)]
KINDS = ["symmetric", "directed", "weighted", "tiny", "corner"]
ROW_BYTES = 5 * 8


def case(replication: int, *overrides: str) -> Config:
    return config(
        *layout_overrides(replication), "model.dropout=0.4", "model.input_dropout=0", "model.hidden_channels=7",
        "seed=3", "runtime.dtype=float64", "optimizer.lr=0.05", "train.epochs=20", "train.eval_every=7", *overrides,
    )  # fmt: skip


def in_chunks(world: World, num_rows: int, run: Callable[..., Any], *args: Any) -> Any:
    """Call ``run`` with chunks of ``num_rows`` rows of the features."""
    before, host_rows.CHUNK_BYTES = host_rows.CHUNK_BYTES, num_rows * ROW_BYTES
    try:
        return run(world, *args)
    finally:
        host_rows.CHUNK_BYTES = before


@pytest.mark.sample(7)
@pytest.mark.parametrize(("world_size", "replication"), LAYOUTS)
@pytest.mark.parametrize("overrides", [[], ["model.num_layers=1"], ["scheme.split_rows=false", "reorder=shuffle"]])
def test_one_step_in_chunks_equals_the_oracle(ranks, world_size: int, replication: int, overrides) -> None:
    cfg = case(replication, "optimizations.offload=always", *overrides)
    for kind in KINDS:
        expected = training.expected_step(cfg, kind)
        for num_rows in (1, 3):
            outcomes = ranks(world_size)(in_chunks, num_rows, training.one_step, cfg, kind)
            for outcome in outcomes:
                assert training.difference(outcome, expected) < 1e-11, (kind, num_rows)


@pytest.mark.sample(2)
@pytest.mark.parametrize(("world_size", "replication"), [(1, 1), (4, 2)])
def test_compiled_gradients_of_chunks_equal_the_oracle(ranks, world_size: int, replication: int) -> None:
    cfg = case(replication, "optimizations.offload=always")
    for kind in KINDS:
        expected = training.expected_step(cfg, kind)
        for outcome in ranks(world_size)(in_chunks, 3, training.one_step_compiled, cfg, kind):
            assert training.difference(outcome, expected) < 1e-11, kind


@pytest.mark.sample(7)
@pytest.mark.parametrize(("world_size", "replication"), LAYOUTS)
@pytest.mark.parametrize("num_layers", [1, 2])
def test_training_in_chunks_equals_the_oracle(ranks, world_size: int, replication: int, num_layers: int) -> None:
    cfg = case(replication, "optimizations.offload=always", f"model.num_layers={num_layers}")
    for kind in KINDS:
        expected = training.expected_training(cfg, kind)
        outcomes = ranks(world_size)(in_chunks, 4, training.trained, cfg, kind)
        for outcome in outcomes:
            assert training.difference(outcome, expected) < 1e-9, kind
        training.assert_equal_on_all_ranks(outcomes)


@pytest.mark.sample(5)
@pytest.mark.parametrize(("world_size", "replication"), [(1, 1), (4, 2)])
@pytest.mark.parametrize("num_layers", [1, 2])
@pytest.mark.parametrize("offload", ["never", "always"])
def test_training_on_lines_as_on_a_gpu_equals_the_oracle(
    ranks, world_size: int, replication: int, num_layers: int, offload: str
) -> None:
    """With one layer, only the loss rows are multiplied."""
    shared = "scheme.shared_memory=false"  # ranks on GPUs have no shared memory
    cfg = case(replication, f"optimizations.offload={offload}", f"model.num_layers={num_layers}", shared)
    for kind in ("directed", "weighted", "corner"):
        expected = training.expected_training(cfg, kind)
        for outcome in ranks(world_size)(training.in_lines, in_chunks, 4, training.trained, cfg, kind):
            assert training.difference(outcome, expected) < 1e-9, kind


@pytest.mark.sample(6)
@pytest.mark.parametrize(("world_size", "replication"), LAYOUTS)
@pytest.mark.parametrize("num_layers", [1, 2])
def test_one_chunk_is_the_run_without_to_the_bit(ranks, world_size: int, replication: int, num_layers: int) -> None:
    for dtype in ("float32", "float64"):
        cfgs = [
            case(
                replication,
                f"model.num_layers={num_layers}",
                f"runtime.dtype={dtype}",
                f"optimizations.offload={offload}",
            )
            for offload in ("never", "always")
        ]
        plain, offloaded = (ranks(world_size)(training.trained, cfg, "directed") for cfg in cfgs)
        for outcome, other in zip(plain, offloaded, strict=True):
            assert outcome.keys() == other.keys()
            assert all(np.array_equal(outcome[name], other[name]) for name in outcome)


def held(world: World, cfg: Config) -> dict[str, Any]:
    """What a rank holds of A @ H0 and where, the lines that it logged, and its losses."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    package = logging.getLogger("fullgnn")
    package.addHandler(handler)
    package.setLevel(logging.INFO)
    try:
        job = set_up(cfg, world, Meter(world.device), dense_graph("symmetric").graph() if world.rank == 0 else None)
    finally:
        package.removeHandler(handler)
    features = job.graph.features
    product = features.products[1] if isinstance(features, PropagatedInput) else features
    if isinstance(product, HostRows):
        rows = torch.cat([chunk.clone() for _, chunk in product.chunks()])
    else:
        rows = product.detach()
    losses = fit(StepRunner(job)).epochs
    return {
        "kind": type(product).__name__,
        "offload": job.optimizations.offload,
        "lines": lines,
        "device": world.device.type,
        "rows": rows.cpu().numpy(),
        "bytes": sum(tensor.nbytes for tensor in job.graph.tensors() if tensor.layout == torch.strided),
        "losses": [record.loss for record in losses],
    }


def test_what_is_applied_is_recorded_and_what_is_held_is_counted(ranks) -> None:
    for world_size, replication in ((1, 1), (4, 2)):
        pool = ranks(world_size)
        never, auto, always = (
            pool(held, case(replication, f"optimizations.offload={o}")) for o in ("never", "auto", "always")
        )
        for off, chosen, on in zip(never, auto, always, strict=True):
            assert (off["kind"], chosen["kind"], on["kind"]) == ("Tensor", "Tensor", "HostRows")
            assert (off["offload"], chosen["offload"], on["offload"]) == ("never", "never", "always")
            assert np.array_equal(off["rows"], on["rows"])
            assert off["losses"] == on["losses"]
            assert on["bytes"] == off["bytes"] if on["device"] == "cpu" else on["bytes"] > off["bytes"]
        lines = [line for rank in [*never, *auto, *always] for line in rank["lines"]]
        assert all("edge to themselves" in line for line in lines)  # the remark on the graph


LINE = 8  # float64 numbers in a memory line: one cache line of a CPU, two sectors of a GPU


def lines_held(world: World, cfg: Config) -> dict[str, Any]:
    """The layout and the memory of A @ H0 and of its loss rows, each one matrix or, on the host, chunks."""
    graph = set_up(cfg, world, Meter(world.device), dense_graph("symmetric").graph() if world.rank == 0 else None).graph
    assert isinstance(graph.features, PropagatedInput)
    product, some = graph.features.products[1], graph.features.rows(graph.loss_block, graph.features.propagation)
    chunks, parts = (
        [chunk for _, chunk in held.chunks()] if isinstance(held, HostRows) else [held] for held in (product, some)
    )
    lined = [matrix for matrix in (*chunks, *parts) if matrix.stride(0) == LINE]
    return {
        "in_lines": len(lined) == len(chunks) + len(parts),
        "behind": [matrix.as_strided((len(matrix), LINE), (LINE, 1))[:, 5:].cpu().numpy() for matrix in lined],
        "bytes": sum(matrix.untyped_storage().nbytes() for matrix in chunks),
        "rows": torch.cat(chunks).cpu().numpy(),
        "loss_rows": torch.cat(parts).cpu().numpy(),
        "train": graph.train_index.cpu().numpy(),
    }


def stored_products(folder: Path) -> dict[str, np.ndarray]:
    """The cached slices of A @ H0, by file name."""
    return {path.name: np.load(path)["power_1"] for path in folder.glob("aggregation/*.npz")}


@pytest.mark.parametrize("offload", ["never", "always"])
def test_on_a_gpu_the_product_lies_in_lines_and_its_cached_file_does_not(ranks, tmp_path, offload: str) -> None:
    caches = tmp_path / "plain", tmp_path / "lines"
    plain_cfg, lines_cfg = (
        case(1, f"optimizations.offload={offload}", f"runtime.cache_dir={cache}") for cache in caches
    )
    plain = ranks(2)(lines_held, plain_cfg)
    for _ in range(2):  # first computed, then loaded
        for outcome, other in zip(plain, ranks(2)(training.in_lines, lines_held, lines_cfg), strict=True):
            assert other["in_lines"]
            assert not any(behind.any() for behind in other["behind"])
            assert other["bytes"] == len(outcome["rows"]) * LINE * 8
            assert np.array_equal(outcome["rows"], other["rows"])
            assert np.array_equal(other["loss_rows"], outcome["rows"][outcome["train"]])
    stored, in_lines = (stored_products(cache) for cache in caches)
    assert len(stored) == 2 and stored.keys() == in_lines.keys()
    assert all(np.array_equal(stored[name], in_lines[name]) for name in stored)


@pytest.mark.parametrize("switch", ["model.input_dropout=0.4", "optimizations.cache_aggregation=false"])
def test_without_a_product_offload_is_off_with_a_line(ranks, switch: str) -> None:
    (outcome,) = ranks(1)(held, case(1, "optimizations.offload=always", switch))
    assert (outcome["kind"], outcome["offload"]) == ("Tensor", "never")
    assert [line for line in outcome["lines"] if line.startswith("optimizations.offload is disabled")]


def test_the_cache_serves_runs_with_offload_and_without(ranks, tmp_path) -> None:
    for world_size, replication in ((1, 1), (4, 2)):
        outcomes = [
            ranks(world_size)(held, case(replication, f"optimizations.offload={o}", f"runtime.cache_dir={tmp_path}"))
            for o in ("always", "never", "always")
        ]
        loaded = [[any("A @ H0 is loaded" in line for line in rank["lines"]) for rank in ranks] for ranks in outcomes]
        assert [ranks[0] for ranks in loaded] == [False, True, True]
        for stored, plain, offloaded in zip(*outcomes, strict=True):
            assert stored["losses"] == plain["losses"] == offloaded["losses"]
            assert np.array_equal(stored["rows"], plain["rows"]) and np.array_equal(stored["rows"], offloaded["rows"])


@pytest.mark.parametrize(
    ("free", "others", "expected"),
    [
        (2000, [], False),  # A @ H0 takes 640 of 2000 bytes: rows are padded to 16 numbers
        (1279, [], True),
        (2000, [(400, 799)], True),  # another rank has less room
        (2000, [(400, 801)], False),
    ],
)
def test_auto_looks_at_the_free_memory_of_every_gpu(monkeypatch, caplog, free, others, expected) -> None:
    caplog.set_level(logging.INFO, "fullgnn")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 5000))
    monkeypatch.setattr(aggregate, "all_gather_objects", lambda own: [own, *others])
    graph: Any = SimpleNamespace(features=torch.zeros(10, 10))
    gpu: Any = SimpleNamespace(device=torch.device("cuda"))
    assert aggregate.offloads(graph, gpu) is expected
    assert [record.getMessage().startswith("A @ H0 stays in host memory") for record in caplog.records] == [
        True
    ] * expected


def device_bytes(world: World, cfg: Config) -> int | None:
    """Peak bytes on the GPU from the set-up to the end; None without a GPU."""
    if world.device.type == "cpu":
        return None
    torch.cuda.reset_peak_memory_stats(world.device)
    before = torch.cuda.memory_allocated(world.device)
    meter = Meter(world.device)
    job = set_up(cfg, world, meter)
    peak = torch.cuda.max_memory_allocated(world.device)
    fit(StepRunner(job))  # resets the peak
    return max(peak, torch.cuda.max_memory_allocated(world.device)) - before


@pytest.mark.gpu
def test_the_features_never_lie_on_the_gpu_as_a_whole(ranks) -> None:
    graph = ["dataset=synthetic", "dataset.num_nodes=20000", "dataset.num_edges=100000", "dataset.num_features=1000"]
    whole = 20000 * 1000 * 8
    for offload in ("always", "never"):
        cfg = case(1, *graph, "train.epochs=2", f"optimizations.offload={offload}")
        (num_bytes,) = ranks(1)(in_chunks, 50000, device_bytes, cfg)
        if num_bytes is not None:
            assert num_bytes < whole / 2 if offload == "always" else num_bytes > whole
