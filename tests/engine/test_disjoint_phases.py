"""The phases of an epoch are disjoint: on every rank none is negative, and with the rest they add up to the epoch."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist

from fullgnn import train, train_minibatch
from fullgnn.config import Config, MinibatchConfig
from fullgnn.distributed import World
from fullgnn.distributed.shared_memory import SharedSlots
from fullgnn.sampling.summary import STEPS
from fullgnn.telemetry.log import Progress
from tests.cases import config, dense_graph, minibatch_config

PAUSE_S = 0.002
LINKS = ["dataset=karate", "task=link_prediction", "task.batch_size=20"]
FULL_BATCH = {
    "links": [*LINKS, "model=gcn"],
    "a vector for each node": [*LINKS, "model=lightgcn", "scheme.shared_memory=false", "train.clip_norm=0.1"],
    "edges": ["dataset=karate", "model=gat", "model.norm=batch", "scheme=1.5d", "scheme.replication=2"],
}


@pytest.mark.sample(6)
def test_no_phase_is_negative_and_all_add_up_to_the_epoch(ranks, tmp_path: Path) -> None:
    """With collectives so slow that a time that counts for two phases exceeds the rest of the epoch."""
    timings = ranks(2)(_all_cases, str(tmp_path))
    for name in (*FULL_BATCH, "sampled"):
        for rank in timings:
            for times in rank[name]:
                parts = [times.get(phase, 0.0) for phase in ("spmm", "comm", "other", *STEPS) if phase != "comm"]
                assert min(parts) >= 0 and times["comm"] > 2 * 1e3 * PAUSE_S, (name, times)
                assert sum(parts) + times["comm"] <= times["epoch"] + 1e-6, (name, times)
        record = json.loads((tmp_path / name.replace(" ", "_") / "record.json").read_text())
        assert len(record["ranks"]) == 2
        for rank, costs in enumerate(record["ranks"]):
            assert min(costs["time_ms"].values()) >= 0
            kept = timings[rank][name][1:]  # without the first epoch
            medians = {
                phase: float(np.median([times.get(phase, 0.0) for times in kept]))
                for phase in ("epoch", "spmm", "comm", "other")
            }
            parts = [sum(times.get(phase, 0.0) for phase in ("spmm", "comm", "other")) for times in kept]
            rests = [times["epoch"] - part for times, part in zip(kept, parts, strict=True)]
            expected = {**medians, "dense": float(np.median(rests))}
            assert costs["time_ms"].keys() == expected.keys()
            for phase, time_ms in expected.items():
                np.testing.assert_allclose(costs["time_ms"][phase], time_ms, rtol=1e-12, atol=1e-9)


def _all_cases(world: World, folder: str) -> dict[str, list[dict[str, float]]]:
    """The times of each epoch of all cases on this rank."""
    undo = [_slow(dist, "all_reduce"), _slow(dist, "batch_isend_irecv"), _slow(SharedSlots, "read")]
    timings: dict[str, list[dict[str, float]]] = {}
    try:
        for name, keys in FULL_BATCH.items():
            cfg: Config = config(*keys, "train.epochs=3", f"run_dir={folder}/{name.replace(' ', '_')}")
            timings[name] = _times_of(lambda cfg=cfg: train.run_on(world, cfg))
        graph = Path(folder) / f"graph{world.rank}.npz"
        dense_graph("symmetric").graph().save(graph)
        keys = ["dataset=npz", f"dataset.path={graph}", "sampler.fanouts=[3,3]", "loader.batch_size=3"]
        sampled: MinibatchConfig = minibatch_config(*keys, "train.epochs=3", f"run_dir={folder}/sampled")
        timings["sampled"] = _times_of(lambda: train_minibatch.run_on(world, sampled))
    finally:
        for restore in undo:
            restore()
    return timings


def _times_of(run: Callable[[], object]) -> list[dict[str, float]]:
    """The times of each epoch that ``run`` trains, on this rank."""
    times: list[dict[str, float]] = []
    original = Progress.add_epoch
    Progress.add_epoch = lambda _, record: times.append(record.cost.time_ms)
    try:
        run()
    finally:
        Progress.add_epoch = original
    return times


def _slow(owner: Any, name: str) -> Any:
    """Let a function sleep before it does its work. Returns what undoes this."""
    original = getattr(owner, name)

    def slow(*args: Any, **keys: Any) -> Any:
        time.sleep(PAUSE_S)
        return original(*args, **keys)

    setattr(owner, name, slow)
    return lambda: setattr(owner, name, original)
