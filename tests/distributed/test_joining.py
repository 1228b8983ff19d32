"""What ranks agree on before there is a process group: the GPUs that they use, and the variables of NCCL."""

import json
import os
import threading
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from fullgnn.distributed import init_world, joining
from fullgnn.distributed.joining import RankPlace, agree_to_join, naming_lost_ranks
from fullgnn.distributed.presence import LostRank, Presence, Process
from fullgnn.errors import ConfigError
from tests.cases import config


class Started(Exception):
    """Raised in the place of the process group."""


@pytest.fixture
def starting(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The arguments with which a rank would begin its process group: as rank 0 of 4, on a machine with NCCL."""
    starts: list[dict[str, Any]] = []

    def started(*args: Any, **kwargs: Any) -> None:
        starts.append(kwargs | {"backends": args[0], "environment": dict(os.environ)})
        raise Started

    for name in (*joining.NCCL_VARIABLES, *joining.NCCL_VARIABLES_OF_SEVERAL_MACHINES):
        monkeypatch.setenv(name, "")  # so that monkeypatch restores it
        monkeypatch.delenv(name)
    for name, value in {"RANK": 0, "WORLD_SIZE": 4, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 4}.items():
        monkeypatch.setenv(name, str(value))
    gpu = SimpleNamespace(uuid="c0ffee")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpu)
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    monkeypatch.setattr(dist, "init_process_group", started)
    return starts


def four_ranks(monkeypatch: pytest.MonkeyPatch, gpus: list[str], machines: list[str]) -> None:
    """Let the other three ranks have told what ``agree_to_join`` asks for: their machines, the ids of their GPUs."""
    store = dist.HashStore()
    for rank in (1, 2, 3):
        store.set(f"problem/{rank}", "|")
        store.set(f"process/{rank}", json.dumps([asdict(Process(machines[rank], 1, "0")), gpus[rank]]))
    monkeypatch.setattr(Process, "current", lambda: Process(machines[0], 1, "0"))
    monkeypatch.setattr(joining, "job_store", lambda use, timeout_s: store)


HERE, TWO = ["here"] * 4, ["here", "here", "there", "there"]


def test_ranks_that_see_one_gpu_each_join(monkeypatch: pytest.MonkeyPatch, starting: list[dict[str, Any]]) -> None:
    """As with ``srun --gpus-per-task=1``, or in containers: each rank sees a device 0, which is another GPU."""
    four_ranks(monkeypatch, ["c0ffee", "decade", "facade", "efface"], HERE)
    with pytest.raises(Started), init_world(config("runtime.device=cuda").runtime):
        pass
    assert starting[0]["backends"] == "cpu:gloo,cuda:nccl" and starting[0]["world_size"] == 4


@pytest.mark.parametrize("machines", [HERE, ["a", "b", "c", "d"]])  # a container may look like a machine of its own
def test_ranks_with_the_same_gpu_are_refused(
    monkeypatch: pytest.MonkeyPatch, starting: list[dict[str, Any]], machines: list[str]
) -> None:
    four_ranks(monkeypatch, ["c0ffee", "decade", "facade", "decade"], machines)
    with pytest.raises(ConfigError) as refused, init_world(config("runtime.device=cuda").runtime):
        pass
    assert str(refused.value).startswith("ranks 1 and 3 use the same GPU, but NCCL needs a GPU for each: ")
    assert "\n" not in str(refused.value) and not starting


def test_over_gloo_ranks_may_share_a_gpu(monkeypatch: pytest.MonkeyPatch, starting: list[dict[str, Any]]) -> None:
    four_ranks(monkeypatch, [""] * 4, HERE)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: pytest.fail("a GPU was asked for its id"))
    with pytest.raises(Started), init_world(config("runtime.device=cuda", "runtime.backend=gloo").runtime):
        pass
    assert starting[0]["backends"] == "cpu:gloo,cuda:gloo"


def every_rank_agrees(gpus: list[str]) -> list[str]:
    """What each of two ranks is told, in threads of this process."""
    store, told = dist.HashStore(), [""] * len(gpus)

    def agree(rank: int) -> None:
        try:
            agree_to_join(store, RankPlace(rank, len(gpus), rank, len(gpus)), None, gpus[rank])
        except ConfigError as error:
            told[rank] = str(error)

    threads = [threading.Thread(target=agree, args=(rank,)) for rank in range(len(gpus))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return told


def test_every_rank_is_told_the_same() -> None:
    (line,) = set(every_rank_agrees(["c0ffee", "decade", "c0ffee"]))
    assert line.startswith("ranks 0 and 2 use the same GPU")
    assert every_rank_agrees(["c0ffee", "decade"]) == every_rank_agrees(["", ""]) == ["", ""]


@pytest.mark.parametrize("kind", ["file", "memory", "server"])
def test_a_rank_that_does_not_come_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str) -> None:
    """Whatever its store raises after the time in which a key has not come."""
    made: dict[str, Callable[[], dist.Store]] = {
        "file": lambda: dist.FileStore(str(tmp_path / "store")),
        "memory": dist.HashStore,
        "server": lambda: dist.TCPStore("localhost", 0, None, is_master=True, wait_for_workers=False),
    }
    store = dist.PrefixStore("job", made[kind]())
    store.set_timeout(timedelta(seconds=0.2))
    store.set("problem/0", "|")  # rank 0 is about to tell of its process, and rank 2 has not come
    monkeypatch.setattr(joining, "job_store", lambda use, timeout_s: store)
    monkeypatch.setattr(RankPlace, "of_environment", lambda: RankPlace(1, 3, 1, 3))
    for line in ("rank 0 has not joined the job", "rank 2 has not joined the job"):
        with pytest.raises(LostRank, match=rf"^{line} within runtime.timeout_s=5 s: see whether it runs$"):
            with init_world(config("runtime.device=cpu", "runtime.timeout_s=5").runtime):
                pass
        store.set("process/0", json.dumps([asdict(Process.current()), ""]))


DEFAULTS = {"TORCH_NCCL_HIGH_PRIORITY": "1", "NCCL_LAUNCH_ORDER_IMPLICIT": "1"}
OF_SEVERAL = {"NCCL_GRAPH_REGISTER": "0"}


@pytest.mark.parametrize(
    ("backend", "machines", "set_before", "expected"),
    [
        ("nccl", HERE, {}, DEFAULTS),
        ("nccl", HERE, {"TORCH_NCCL_HIGH_PRIORITY": "0"}, DEFAULTS | {"TORCH_NCCL_HIGH_PRIORITY": "0"}),
        ("nccl", ["here", "here", "there", "there"], {}, DEFAULTS | OF_SEVERAL),
        (
            "nccl",
            ["here", "here", "there", "there"],
            {"NCCL_GRAPH_REGISTER": "1"},
            DEFAULTS | {"NCCL_GRAPH_REGISTER": "1"},
        ),
        ("gloo", ["here", "here", "there", "there"], {}, {}),
    ],
)
def test_variables_of_nccl_are_set_before_it_starts(
    monkeypatch: pytest.MonkeyPatch,
    starting: list[dict[str, Any]],
    backend: str,
    machines: list[str],
    set_before: dict[str, str],
    expected: dict[str, str],
) -> None:
    for name, value in set_before.items():
        monkeypatch.setenv(name, value)
    four_ranks(monkeypatch, ["c0ffee", "decade", "facade", "efface"], machines)
    with pytest.raises(Started), init_world(config("runtime.device=cuda", f"runtime.backend={backend}").runtime):
        pass
    environment = starting[0]["environment"]
    assert {name: environment[name] for name in DEFAULTS | OF_SEVERAL if name in environment} == expected


def test_a_gpu_that_waits_too_long_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "GRACE_S", 0.0)
    presence = Presence(dist.HashStore(), 0, [Process.current()] * 2, 5.0, True)
    with pytest.raises(LostRank, match=r"^a rank did not answer within runtime.timeout_s=5 s, although all run"):
        with naming_lost_ranks(presence):
            raise TimeoutError("a GPU did not complete its work within 5 s")
