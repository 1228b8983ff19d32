"""A cache of automatic size takes what the first batch leaves of the device, and changes no batch."""

import logging
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from fullgnn.distributed import World, world_of_one
from fullgnn.errors import ConfigError, DataError
from fullgnn.graph import load_dataset
from fullgnn.kernels.support.trials import TensorPeak
from fullgnn.sampling import loader as loader_file
from fullgnn.sampling.caches import CacheByCount, CacheByDegree, CacheByPresampling, CacheExactly
from fullgnn.sampling.setup import set_up_sampled
from fullgnn.storage.folder import checkpoints, place_of
from fullgnn.telemetry import machine
from fullgnn.telemetry.machine import left_bytes
from fullgnn.telemetry.meter import Meter
from tests.cases import minibatch_config
from tests.sampling.training import run, same

GRAPH = ["dataset=rmat", "dataset.num_nodes=400", "dataset.num_edges=4000", "dataset.num_features=3"]
ROW_BYTES, RESERVE = 3 * 4, 1_000_000
PLAIN = [*GRAPH, "loader.batch_size=30", "runtime.device=cpu"]
KEYS = [*PLAIN, "cache.megabytes=null", "cache.reserve_megabytes=1"]


def left(num_rows: int) -> Any:
    """Lets the device have room for so many rows."""
    return mock.patch.object(loader_file, "left_bytes", lambda *_: RESERVE + num_rows * ROW_BYTES)


def rows_by_batch(world: World, keys: list[str], num_rows: int, num_epochs: int) -> list[dict[str, Any]]:
    """Which rows stay on the device in each batch, and how many hits the loader counts."""
    meter = Meter(world.device)
    training = set_up_sampled(minibatch_config(*KEYS, *keys), world, meter)
    source, batches = training.loader.features, []  # type: ignore[attr-defined]
    peak = TensorPeak(world.device)
    with left(num_rows + world.rank), closing(training.loader) as loader:
        for epoch in range(1, num_epochs + 1):
            meter.take()
            for batch in loader.epoch(epoch):
                kept = np.flatnonzero(source._slot >= 0).tolist()
                training.watched_step(batch, peak)
                held = sum(map(len, source.tensors()))
                batches.append({"kept": kept, "held": held, "counts": meter.take().counts})
    return batches


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_second_batch_has_the_rows_for_which_there_is_room(ranks, size: int, workers: int) -> None:
    readers = np.bincount(load_dataset(minibatch_config(*GRAPH).dataset).indices, minlength=400)
    for rank, batches in enumerate(
        ranks(size)(rows_by_batch, ["cache=degree", f"loader.num_workers={workers}"], 50, 2)
    ):
        expected = sorted(sorted(range(400), key=lambda node: -readers[node])[: 50 + rank])
        first, *others = batches
        assert first["kept"] == [] and first["held"] == 0 and not first["counts"].get("hits")
        assert first["counts"]["fetched_bytes"] == first["counts"]["input_rows"] * ROW_BYTES
        assert all(batch["kept"] == expected and batch["held"] == 50 + rank for batch in others)
        assert sum(batch["counts"]["hits"] for batch in others) > 0
        filled = [batch["counts"].get("filled_bytes", 0) for batch in others]
        assert filled == [(50 + rank) * ROW_BYTES, *[0] * (len(others) - 1)]


@pytest.mark.parametrize("cache", ["presample", "exact", "auto"])
def test_memory_is_taken_once(ranks, cache: str) -> None:
    """Also where all rows that are read fit, and there are more of them in a later epoch."""
    for num_rows in (40, 390, 4000):
        (batches,) = ranks(1)(rows_by_batch, [f"cache={cache}", "sampler.fanouts=[2,2]"], num_rows, 3)
        assert {batch["held"] for batch in batches[1:]} == {min(num_rows, 400)}
        assert all(len(batch["kept"]) <= num_rows for batch in batches)
        if num_rows == 40:
            assert all(len(batch["kept"]) == num_rows for batch in batches[1:])


def test_an_epoch_of_one_batch_is_enough(ranks) -> None:
    batches = ranks(2)(rows_by_batch, ["cache=degree", "loader.batch_size=400"], 50, 2)[1]
    assert [len(batch["kept"]) for batch in batches] == [0, 51]


def curve(world: World, cfg: Any, num_rows: int) -> dict[str, Any]:
    with left(num_rows + 10 * world.rank):
        return run(world, cfg)


@pytest.mark.sample(4)
@pytest.mark.parametrize("cache", ["degree", "exact"])
def test_the_curve_is_the_same_with_any_room_after_any_batch(ranks, tmp_path: Path, cache: str) -> None:
    keys = ["train.epochs=2", "runtime.threads=1", "train.checkpoint_every=2"]
    in_epochs = ["train.checkpoint_every_batches=3", "train.keep_checkpoints=100"]

    def cfg(name: str, *more: str) -> Any:
        return minibatch_config(*keys, *more, f"run_dir={tmp_path / name}")

    for size in (1, 2):
        plain = ranks(size)(run, cfg(f"plain{size}", *PLAIN))[0]
        for num_rows, workers in ((0, 0), (60, 0), (60, 2), (4000, 1)):
            name = f"{size}.{num_rows}.{workers}"
            more = [*KEYS, f"cache={cache}", f"loader.num_workers={workers}", *in_epochs * (num_rows == 60)]
            cached = ranks(size)(curve, cfg(name, *more), num_rows)[0]
            same(cached, plain, 0)  # to the bit
            rate = cached["record"]["sampling"]["hit_rate"]
            assert (rate == 0) == (num_rows == 0 and size == 1)
            if num_rows == 60:
                middle = checkpoints(tmp_path / name)[1]
                assert place_of(middle)[1] > 0
                again = ranks(size)(curve, cfg(f"{name}.again", *more, f"resume={middle}"), num_rows)[0]
                assert again["loss"] == plain["loss"][-len(again["loss"]) :]
                assert torch.equal(again["model"], plain["model"])


def test_the_peak_has_the_cache(ranks, tmp_path: Path) -> None:
    keys = [*KEYS, "cache=degree", "dataset.num_features=64", "train.epochs=1", "runtime.threads=1"]
    results = [
        ranks(1)(curve, minibatch_config(*keys, f"run_dir={tmp_path / str(rows)}"), rows)[0] for rows in (0, 10_000)
    ]
    peaks = [result["record"]["peak_tensor_bytes"] for result in results]
    # The second batch, which has the cache beside it, is another one than the first.
    assert 0.8 * 400 * 64 * 4 < peaks[1] - peaks[0] <= 400 * 64 * 4


def failing(world: World) -> str:
    training = set_up_sampled(minibatch_config(*KEYS, "cache=degree"), world, Meter(world.device))

    def broken(*_: object) -> int:
        if world.rank == 1:
            raise DataError("rank 1 cannot tell")
        return 0

    with mock.patch.object(loader_file, "left_bytes", broken), closing(training.loader) as loader:
        for batch in loader.epoch(1):
            try:
                training.watched_step(batch, TensorPeak(world.device))
            except DataError as error:
                return str(error)
    return ""


def test_a_rank_that_cannot_tell_ends_all(ranks) -> None:
    assert ranks(2)(failing) == ["rank 1 cannot tell"] * 2


def test_the_log_says_the_size(caplog: pytest.LogCaptureFixture) -> None:
    for num_rows, text in ((0, "room for 0 rows"), (70, "room for 70 rows of features (840 B)")):
        cfg = minibatch_config(*KEYS, "cache=degree")
        caplog.clear()
        with world_of_one(cfg.runtime) as world, caplog.at_level(logging.INFO), left(num_rows):
            training = set_up_sampled(cfg, world, Meter(world.device))
            for batch in training.loader.epoch(1):
                training.watched_step(batch, TensorPeak(world.device))
        lines = [record.getMessage() for record in caplog.records if "cache.megabytes=null" in record.getMessage()]
        assert len(lines) == 1 and text in lines[0]


def test_what_the_device_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "free_bytes", lambda: 8_000)
    assert [left_bytes(torch.device("cpu"), ranks, 700) for ranks in (1, 4)] == [8000, 2000]
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (6_000, 9_999))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 1_000)
    for gpus, ranks, expected in ((1, 1, 6300), (4, 4, 6300), (2, 4, 3300), (1, 3, 2300), (4, 6, 3300)):
        monkeypatch.setattr(torch.cuda, "device_count", lambda gpus=gpus: gpus)
        world = World(0, ranks, ranks, torch.device("cuda"), "gloo", 60.0)
        assert left_bytes(world.device, world.ranks_per_device, 700) == expected


@pytest.mark.parametrize("cache", [CacheByDegree, CacheByPresampling, CacheExactly, CacheByCount])
def test_a_reserve_out_of_range_is_one_line(cache: type) -> None:
    for reserve in (-1, np.nan, "much"):
        with pytest.raises(ConfigError, match=f"cache.reserve_megabytes={reserve} is out of range: give 0 or more"):
            cache(None, reserve_megabytes=reserve)


@pytest.mark.gpu
def test_a_gpu_is_filled(tmp_path: Path) -> None:
    """With a reserve of all but some rows."""
    cfg = minibatch_config(*KEYS, "cache=degree", "runtime.device=cuda")
    with world_of_one(cfg.runtime) as world:
        training = set_up_sampled(cfg, world, Meter(world.device))
        peak = TensorPeak(world.device)
        for batch in training.loader.epoch(1):
            training.watched_step(batch, peak)
        assert sum(map(len, training.loader.tensors())) == 400
