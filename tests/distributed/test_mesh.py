"""Joining a job, and the groups of a mesh."""

import os
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from fullgnn.config import Config
from fullgnn.distributed import World, init_world, mesh, world_of_one
from fullgnn.engine import fit, make_scheme, set_up
from fullgnn.engine.train_step import TrainStep
from fullgnn.telemetry.meter import Meter
from tests.cases import config, dense_graph, layout_overrides
from tests.distributed.recorded import recorded


def operations(world: World, cfg: Config) -> tuple[list[tuple[str, int]], Counter[str]]:
    """The operations of a short training on new groups: the first operation and the size of each group, except the
    group of all ranks, and the number of times that each operation occurs."""
    world = replace(world, _meshes={})
    meter = Meter(world.device)
    with recorded() as found:
        scheme = make_scheme(cfg, world, meter)
        cost = meter.take()
        job = set_up(cfg, world, scheme, dense_graph("symmetric").graph() if world.rank == 0 else None)
        fit(TrainStep(job.model, job.graph, scheme, cfg, meter), cfg.train)
    groups = list(dict.fromkeys(id(group) for _, group in found if group is not None))
    firsts = [next(name for name, group in found if id(group) == number) for number in groups]
    sizes = [next(dist.get_world_size(group) for _, group in found if id(group) == number) for number in groups]
    assert not cost.time_ms and not cost.bytes_received
    assert [name for name, _ in found[: len(groups)]] == ["all_reduce"] * len(groups)
    return list(zip(firsts, sizes)), Counter(name for name, _ in found)


@pytest.mark.parametrize(("world_size", "replication"), [(4, 2)])
def test_every_group_begins_with_an_all_reduce(ranks, world_size: int, replication: int) -> None:
    """NCCL needs all ranks of a group in the group's first operation, and an exchange may involve only some of them."""
    cfg = config(
        *layout_overrides(replication), "train.epochs=1", "scheme.shared_memory=false", "scheme.exchange=needed_rows"
    )
    for firsts, counts in ranks(world_size)(operations, cfg):
        assert firsts == [("all_reduce", world_size // replication), ("all_reduce", replication)]
        assert counts["batch_isend_irecv"] > 0


@pytest.mark.parametrize(
    ("backend", "set_before"), [("nccl", {}), ("nccl", {"TORCH_NCCL_HIGH_PRIORITY": "0"}), ("gloo", {})]
)
def test_variables_of_nccl_are_set_before_it_starts(monkeypatch, backend: str, set_before: dict[str, str]) -> None:
    class Started(Exception):
        pass

    def started(*args: Any, **kwargs: Any) -> None:
        raise Started({name: os.environ.get(name) for name in mesh.NCCL_VARIABLES})

    for name in mesh.NCCL_VARIABLES:
        monkeypatch.setenv(name, "")  # so that monkeypatch restores it
        monkeypatch.delenv(name)
    environment = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    for name, value in (environment | set_before).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    monkeypatch.setattr(dist, "init_process_group", started)
    monkeypatch.setattr(mesh, "job_store", lambda use, timeout_s: dist.HashStore())
    runtime = config("runtime.device=cuda", f"runtime.backend={backend}").runtime
    with pytest.raises(Started) as caught, init_world(runtime):
        pass
    defaults = {"TORCH_NCCL_HIGH_PRIORITY": "1", "NCCL_LAUNCH_ORDER_IMPLICIT": "1"}
    assert caught.value.args[0] == (defaults | set_before if backend == "nccl" else dict.fromkeys(defaults))


def test_a_world_of_one_needs_no_launcher(monkeypatch) -> None:
    """A world of one trains, whatever job the environment describes, and may be entered again."""
    monkeypatch.setenv("WORLD_SIZE", "7")
    cfg = config(*layout_overrides(1), "train.epochs=1", "runtime.device=cpu")
    for where in (torch.device("cpu"), cfg.runtime):
        with world_of_one(where) as world:
            assert (world.rank, world.size, world.device, list(world.others)) == (0, 1, torch.device("cpu"), [])
            scheme = make_scheme(cfg, world, Meter(world.device))
            job = set_up(cfg, world, scheme, dense_graph("symmetric").graph())
            fit(TrainStep(job.model, job.graph, scheme, cfg, Meter(world.device)), cfg.train)
        assert not dist.is_initialized()
