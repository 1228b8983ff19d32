"""The groups of a mesh: which there are, when they are made, and how they begin."""

from collections import Counter
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist

from fullgnn.config import Config
from fullgnn.distributed import World, world_of_one
from fullgnn.engine import fit, make_scheme, set_up
from fullgnn.engine.step_runner import StepRunner
from fullgnn.telemetry.meter import Meter
from tests.cases import config, dense_graph, layout_overrides
from tests.distributed.recorded import recorded


def operations(world: World, cfg: Config) -> tuple[list[tuple[str, int]], Counter[str]]:
    """The operations of a short training on new groups: the first operation and the size of each group, except the
    group of all ranks, and the number of times that each operation occurs."""
    world = replace(world, _meshes={})
    meter = Meter(world.device)
    with recorded() as started:
        make_scheme(cfg, world, meter)
        cost = meter.take()
        job = set_up(cfg, world, meter, dense_graph("symmetric").graph() if world.rank == 0 else None)
        fit(StepRunner(job))
    groups = list(dict.fromkeys(id(group) for _, group in started if group is not None))
    firsts = [next(name for name, group in started if id(group) == number) for number in groups]
    sizes = [next(dist.get_world_size(group) for _, group in started if id(group) == number) for number in groups]
    assert not cost.time_ms and not cost.bytes_received
    assert [name for name, _ in started[: len(groups)]] == ["all_reduce"] * len(groups)
    return list(zip(firsts, sizes)), Counter(name for name, _ in started)


BROADCAST = ["scheme.stage_order=broadcast", "scheme.exchange=broadcast"]


@pytest.mark.parametrize(
    ("world_size", "replication", "keys", "sizes"),
    [
        (4, 2, ["scheme.exchange=needed_rows"], [2]),  # the replicas of a block row; no stage is broadcast
        (4, 2, BROADCAST, [2, 2]),
        (2, 1, BROADCAST, []),  # the block rows have the group of all ranks
    ],
)
def test_groups_are_those_in_use_and_begin_with_an_all_reduce(
    ranks, world_size: int, replication: int, keys: list[str], sizes: list[int]
) -> None:
    """NCCL needs all ranks of a group in the group's first operation, and an exchange may involve only some of them."""
    cfg = config(*layout_overrides(replication), "train.epochs=1", "scheme.shared_memory=false", *keys)
    for firsts, counts in ranks(world_size)(operations, cfg):
        assert firsts == [("all_reduce", size) for size in sizes]
        assert counts["broadcast" if keys is BROADCAST else "batch_isend_irecv"] > 0


def groups_of_axes(world: World, timeout_s: float) -> dict[str, Any]:
    """The ranks of the group of each axis of a 2 x 2 x 1 mesh, the timeouts of new groups, and how many are made."""
    timeouts, new_group = [], dist.new_group

    def created(*args: Any, **kwargs: Any) -> Any:
        timeouts.append(kwargs["timeout"].total_seconds())
        return new_group(*args, **kwargs)

    world = replace(world, _meshes={}, timeout_s=timeout_s)
    cube, line = world.mesh((2, 2, 1), ("row", "replica", "only")), world.mesh((4, 1), ("row", "replica"))
    with mock.patch.object(dist, "new_group", created):
        facts: dict[str, Any] = {"before": len(timeouts)}
        for axis in ("replica", "row", "replica", "only"):
            group = cube.get_group(axis)
            facts[axis] = None if group is None else dist.get_process_group_ranks(group)
        facts["created"] = list(timeouts)
        facts["whole axis"] = line.get_group("row") is world.group and line.get_group("replica") is None
    assert timeouts == facts["created"] and world.mesh((4, 1), ("row", "replica")) is line
    return facts


def test_groups_of_a_mesh_wait_as_long_as_the_job_does(ranks) -> None:
    for rank, facts in enumerate(ranks(4)(groups_of_axes, 77.0)):
        row, replica = divmod(rank, 2)
        assert facts["replica"] == [2 * row, 2 * row + 1] and facts["row"] == [replica, 2 + replica]
        assert facts["only"] is None and facts["whole axis"] and facts["before"] == 0
        assert facts["created"] == [77.0] * 4  # two groups on each of two axes


@pytest.mark.parametrize(
    ("device", "backend", "num_visible", "expected"),
    [("cpu", "gloo", 0, 4), ("cuda", "gloo", 3, 2), ("cuda", "nccl", 4, 1), ("cuda", "nccl", 1, 1)],
)
def test_ranks_that_share_a_device(monkeypatch, device: str, backend: str, num_visible: int, expected: int) -> None:
    """Over NCCL none do, although each may see one GPU alone."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_visible)
    assert World(0, 8, 4, torch.device(device), backend, 60.0).ranks_per_device == expected


def test_a_world_of_one_needs_no_launcher(monkeypatch) -> None:
    """A world of one trains, whatever job the environment describes, and may be entered again."""
    monkeypatch.setenv("WORLD_SIZE", "7")
    cfg = config(*layout_overrides(1), "train.epochs=1", "runtime.device=cpu")
    for where in (torch.device("cpu"), cfg.runtime):
        with world_of_one(where) as world:
            assert (world.rank, world.size, world.device, list(world.others)) == (0, 1, torch.device("cpu"), [])
            job = set_up(cfg, world, Meter(world.device), dense_graph("symmetric").graph())
            fit(StepRunner(job))
        assert not dist.is_initialized()
