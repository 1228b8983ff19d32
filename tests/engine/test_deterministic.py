"""``runtime.deterministic``: the options that it refuses, the variables that it sets, and equal bits of runs on a CPU.

``tests/kernels/spmm/test_autotune.py`` tests that kernels on a GPU are then chosen without timing.
"""

import dataclasses
import hashlib
import os
import socket
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from fullgnn.config import Config
from fullgnn.distributed import World, init_world
from fullgnn.distributed.mesh import DETERMINISTIC_VARIABLES
from fullgnn.engine import check_deterministic, fit, make_scheme, predict, set_up
from fullgnn.engine.step_runner import StepRunner
from fullgnn.errors import ConfigError
from fullgnn.kernels.dense import dense
from fullgnn.kernels.loss import cross_entropy as loss
from fullgnn.kernels.spmm import blocked
from fullgnn.kernels.support import gpu
from fullgnn.telemetry.meter import Meter
from fullgnn.train import run_on
from tests.cases import config

REPEATS = 10


def digest(*arrays: np.ndarray) -> str:
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()


def runs(world: World, cfg: Config, threads: int, repeats: int) -> tuple[list[str], int]:
    """A digest of losses, parameters and logits for each repeat, and how many tasks were given to other threads."""
    from fullgnn.kernels.support import process as pool

    digests, shared = [], 0
    submit = pool.pool_of(threads).submit

    def counted(*args: Any) -> Any:
        nonlocal shared
        shared += 1
        return submit(*args)

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        # The graph is small: minimal thresholds make every product, gradient and loss use all threads.
        with (
            mock.patch.object(blocked, "MIN_SHARED_LINES", 1),
            mock.patch.object(dense, "MIN_WORK", 1),
            mock.patch.object(loss, "MIN_ELEMENTS", 1),
            mock.patch("fullgnn.kernels.dropout._philox_cpu.PARALLEL_ELEMENTS", 1),
            mock.patch.object(pool.pool_of(threads), "submit", counted),
        ):
            for _ in range(repeats):
                meter = Meter(world.device)
                job = set_up(cfg, world, meter)
                result = fit(StepRunner(job))
                losses = np.array([record.loss for record in result.epochs])
                parameters = [parameter.detach().cpu().numpy() for parameter in job.model.parameters()]
                digests.append(digest(losses, *parameters, predict(job).cpu().numpy()))
    finally:
        torch.set_num_threads(before)
    return digests, shared


CASE = [
    "dataset=synthetic", "dataset.num_nodes=900", "dataset.num_edges=18000", "dataset.num_features=40",
    "model.hidden_channels=24", "train.epochs=3", "train.eval_every=3", "runtime.deterministic=true",
]  # fmt: skip


@pytest.mark.sample(4)
@pytest.mark.parametrize(("dtype", "repeats"), [("float32", REPEATS), ("float64", 3)])
def test_every_run_on_a_cpu_has_the_same_bits(ranks, dtype: str, repeats: int) -> None:
    """Each rank has one thread, or two threads that take the tasks of a product in any order."""
    cfg = config(*CASE, f"runtime.dtype={dtype}")
    alone, together = (ranks(2)(runs, cfg, threads, repeats) for threads in (1, 2))
    for (of_one, shared_by_one), (of_two, shared_by_two) in zip(alone, together):
        assert len(set(of_one)) == 1 and len(set(of_two)) == 1
        assert shared_by_one == 0 and shared_by_two > 10 * repeats
        assert of_one[0] == of_two[0], "the number of threads changes the bits"
    other = ranks(2)(runs, config(*CASE, f"runtime.dtype={dtype}", "seed=1"), 1, 1)
    assert other[0][0][0] != alone[0][0][0], "another seed gives the same digest"


def refused(world: World, cfg: Config, device: str) -> str:
    """The error message of a run on ``device``, which must fail before it creates its folder."""
    there = dataclasses.replace(world, device=torch.device(device))
    try:
        run_on(there, cfg)
    except ConfigError as error:
        return "" if Path(cfg.run_dir).exists() else str(error)
    return "nothing was refused"


@pytest.mark.parametrize(
    ("overrides", "device", "what"),
    [
        (["kernel=torch"], "cuda", "kernel=torch is cuSPARSE on a GPU"),
        (["scheme=auto"], "cpu", "scheme=auto chooses by timings of this machine"),
    ],
)
def test_what_is_not_deterministic_is_refused_on_every_rank(ranks, tmp_path, overrides, device: str, what: str) -> None:
    cfg = config("runtime.deterministic=true", f"run_dir={tmp_path / 'run'}", *overrides)
    messages = ranks(2)(refused, cfg, device)
    assert messages[0] == messages[1] and "\n" not in messages[0]
    assert messages[0].startswith("runtime.deterministic=true: ") and what in messages[0]


@pytest.mark.parametrize(
    ("overrides", "device"),
    [
        (["kernel=torch"], "cpu"),
        (["kernel=auto"], "cuda"),
        (["kernel=csr"], "cuda"),
        (["scheme=auto", "scheme.hardware=h200x8"], "cpu"),
        (["kernel=torch", "runtime.deterministic=false"], "cuda"),
    ],
)
def test_what_is_deterministic_is_not(monkeypatch: pytest.MonkeyPatch, overrides: list[str], device: str) -> None:
    monkeypatch.setattr(gpu, "has_triton", lambda: True)
    check_deterministic(config("runtime.deterministic=true", *overrides), torch.device(device))


def test_without_triton_auto_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "has_triton", lambda: False)
    with pytest.raises(ConfigError, match="install Triton"):
        check_deterministic(config("runtime.deterministic=true"), torch.device("cuda"))


def chooses_by_rule(world: World, cfg: Config) -> bool:
    return make_scheme(cfg, world, Meter(world.device)).kernel.autotune.deterministic


def test_auto_chooses_by_rule_where_it_is_asked_for(ranks) -> None:
    for switch, expected in (("true", True), ("false", False)):
        assert ranks(1)(chooses_by_rule, config(f"runtime.deterministic={switch}")) == [expected]


@pytest.mark.parametrize("deterministic", [True, False])
def test_the_environment_is_set_before_a_group_is_made(monkeypatch: pytest.MonkeyPatch, deterministic: bool) -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    here = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "MASTER_PORT": port}
    for name, value in here.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("NCCL_ALGO", "Ring")  # a value that the user has set stays
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")  # so that monkeypatch restores it
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    seen: dict[str, str | None] = {}

    def stop(*args: Any, **settings: Any) -> None:
        seen.update({name: os.environ.get(name) for name in DETERMINISTIC_VARIABLES})
        raise RuntimeError("no group here")

    runtime = config(f"runtime.deterministic={str(deterministic).lower()}", "runtime.device=cpu").runtime
    with mock.patch("torch.distributed.init_process_group", stop), pytest.raises(RuntimeError, match="no group"):
        with init_world(runtime):
            pass
    workspace = DETERMINISTIC_VARIABLES["CUBLAS_WORKSPACE_CONFIG"] if deterministic else None
    assert seen == {"NCCL_ALGO": "Ring", "CUBLAS_WORKSPACE_CONFIG": workspace}
    assert DETERMINISTIC_VARIABLES["NCCL_ALGO"].startswith("^NVLS")
