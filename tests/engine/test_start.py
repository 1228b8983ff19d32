"""What the command refuses before it starts a rank, and the modules that a rank imports before its first epoch."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fullgnn import train, train_minibatch
from fullgnn.distributed import mesh
from fullgnn.engine import command
from fullgnn.engine.optimizers import make_optimizer, without_compiler
from fullgnn.errors import DataError
from tests.cases import config, minibatch_config
from tests.commands import environment

SCRIPT = """
import sys
from fullgnn.config.compose import compose, load_config
from fullgnn.distributed import world_of_one
from fullgnn.train import run_on

cfg = load_config(compose("dataset=digits", "model.dropout=0.5", "train.epochs=3", f"run_dir={sys.argv[1]}",
                          "train.clip_norm=1", "schedule=cosine", "schedule.warmup_epochs=1"))
with world_of_one(cfg.runtime) as world:
    run_on(world, cfg)
print(sorted({"torch._dynamo", "sympy", "triton", "matplotlib", "tensorboard", "networkx"} & {*sys.modules}))
"""


def test_a_run_imports_neither_the_compiler_of_torch_nor_what_it_does_not_use(tmp_path: Path) -> None:
    """Each of these modules would cost every rank memory and up to two seconds."""
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    env = {**environment(), "CUDA_VISIBLE_DEVICES": ""}  # a GPU needs Triton
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def no_rank(*args: object, **kwargs: object) -> None:
    raise AssertionError("a rank is started")


@pytest.mark.parametrize("way", ["fork_workers", "launch_workers"])
def test_a_missing_file_of_the_dataset_is_found_before_ranks_start(way: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(command, way, no_rank)
    given = ["dataset=npz", f"dataset.path={tmp_path / 'missing.npz'}", f"run_dir={tmp_path / 'run'}"]
    for module, cfg in ((train, config(*given)), (train_minibatch, minibatch_config(*given))):
        with pytest.raises(DataError, match="no file .*missing.npz: set dataset.path"):
            module.start(cfg, given, fork=way == "fork_workers")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("overrides", "cores", "warned"),
    [
        (
            ["runtime.nproc=100"],
            2,
            "100 ranks share 2 cores: they take turns, so that an epoch takes longer than with 2, ",
        ),
        (["runtime.nproc=2"], 1, "2 ranks share one core: they take turns"),
        (["runtime.nproc=2"], 2, None),
        ([], 1, None),
        (["runtime.nproc=100", "runtime.dry_run=true", "world_size=200"], 2, None),  # one rank runs
    ],
)
def test_more_ranks_than_cores_are_told_before_they_start(
    overrides: list[str], cores: int, warned: str | None, tmp_path: Path, monkeypatch, caplog
) -> None:
    """Once, also in a sweep, whose jobs one process starts."""
    mesh.warn_once.cache_clear()
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    seen = []
    for way in ("fork_workers", "launch_workers"):
        monkeypatch.setattr(command, way, lambda *_, **__: seen.append(list(caplog.messages)))
    monkeypatch.setattr(command, "read_record", lambda _: None)
    cfg = config("dataset=karate", "runtime.device=cpu", f"run_dir={tmp_path / 'run'}", *overrides)
    for fork in (False, True):
        train.start(cfg, [], fork=fork)
    assert seen[0] == seen[1] == caplog.messages
    assert len(caplog.messages) == (warned is not None)
    assert all(line.startswith(warned) and line.endswith(f"runtime.nproc={cores} or less") for line in caplog.messages)


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_an_optimizer_without_the_compiler_takes_the_same_steps(name: str) -> None:
    torch.manual_seed(0)
    models = [torch.nn.Linear(5, 3) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    momentum = ["optimizer.momentum=0.9"] if name == "sgd" else []
    cfg = config(f"optimizer={name}", "optimizer.lr=0.1", "optimizer.weight_decay=0.1", *momentum)
    ours = make_optimizer(cfg.optimizer, models[0])
    theirs = {
        "sgd": lambda parameters: torch.optim.SGD(parameters, 0.1, 0.9, weight_decay=0.1),
        "adam": lambda parameters: torch.optim.Adam(parameters, 0.1, weight_decay=0.1, fused=True),
        "adamw": lambda parameters: torch.optim.AdamW(parameters, 0.1, weight_decay=0.1, fused=True),
    }[name](models[1].parameters())
    for _ in range(3):
        x = torch.randn(7, 5)
        for model, optimizer in zip(models, (ours, theirs)):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()
        ours.load_state_dict(ours.state_dict())
    for parameter, other in zip(models[0].parameters(), models[1].parameters()):
        assert torch.equal(parameter, other) and parameter.grad is not None


def test_the_step_of_an_optimizer_without_the_compiler_records_no_gradients() -> None:
    weight = torch.ones(2, requires_grad=True)
    optimizer = without_compiler(torch.optim.SGD)([weight], 0.1)
    weight.sum().backward()
    optimizer.step()
    assert weight.requires_grad and weight.is_leaf and isinstance(optimizer, torch.optim.SGD)
