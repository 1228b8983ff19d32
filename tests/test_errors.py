"""Every user error ends with one line that says what is wrong and what to do: on every rank, soon, without a hang.

Where only the message matters, the ranks of the session execute the code of a run; the other tests start real command
lines.
"""

import logging
import re
import resource
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from scipy.sparse import csr_array

from fullgnn.config import RuntimeConfig
from fullgnn.distributed import World, init_world, joining
from fullgnn.distributed.mesh import resolve
from fullgnn.errors import MAX_QUOTED, ConfigError, DataError, FullGNNError, UnsupportedError, quoted
from fullgnn.partition import Cut, Partition
from fullgnn.reorder import blockwise, metis, rcm
from fullgnn.train import run_on
from tests.cases import config
from tests.commands import OWN, environment, run_command, start_command, torchrun


def arrays(**changes: Any) -> dict[str, Any]:
    """A ring of 12 nodes in the npz layout, valid except for ``changes``; a change to None omits the array."""
    nodes = np.arange(12)
    sound = {
        "adj_data": np.ones(12, np.float32),
        "adj_indices": (nodes + 1) % 12,
        "adj_indptr": np.arange(13),
        "adj_shape": np.array([12, 12]),
        "attr_matrix": np.eye(12, dtype=np.float32),
        "labels": nodes % 3,
        "train_mask": nodes < 6,
        "val_mask": (nodes >= 6) & (nodes < 9),
        "test_mask": nodes >= 9,
    }
    return {name: array for name, array in (sound | changes).items() if array is not None}


def spoiled(array: np.ndarray, index: Any, value: Any) -> np.ndarray:
    copy = array.copy()
    copy[index] = value
    return copy


SOUND = arrays()
BAD_FILES: dict[str, tuple[dict[str, Any], str]] = {
    "label too large": (
        {"labels": spoiled(SOUND["labels"], 3, 7), "num_classes": np.array(3)},
        "label 7 is out of range",
    ),
    "label negative": ({"labels": spoiled(SOUND["labels"], 3, -2)}, "label -2 is out of range"),
    "NaN feature": ({"attr_matrix": spoiled(SOUND["attr_matrix"], (2, 2), np.nan)}, "features hold NaN or Inf"),
    "Inf feature": ({"attr_matrix": spoiled(SOUND["attr_matrix"], (2, 2), np.inf)}, "features hold NaN or Inf"),
    "node id too large": ({"adj_indices": spoiled(SOUND["adj_indices"], 4, 12)}, "adj_* is no CSR matrix"),
    "node id negative": ({"adj_indices": spoiled(SOUND["adj_indices"], 4, -1)}, "adj_* is no CSR matrix"),
    "features too short": (
        {"attr_matrix": SOUND["attr_matrix"][:11]},
        "features has shape (11, 12) but the graph has 12",
    ),
    "labels too short": ({"labels": SOUND["labels"][:11]}, "labels has shape (11,) but the graph has 12"),
    "mask too long": ({"train_mask": np.ones(13, bool)}, "train_mask has shape (13,) but the graph has 12"),
    "no training node": (
        {"train_mask": np.zeros(12, bool)},
        "graph.npz has no train_mask, and task=node_classification learns from labelled nodes: write it with a",
    ),
    "no labels": (
        {"labels": None},
        "graph.npz has no labels, and task=node_classification learns from labelled nodes: write it with labels",
    ),
    "pickled objects": ({"labels": np.array([{}] * 12, dtype=object)}, "array 'labels' holds Python objects"),
}

BAD_VALUES = {
    "scheme=1.5d scheme.replication=3": "scheme.replication=3 does not divide the 2 processes: choose one of 1, 2",
    "scheme=1.5d scheme.replication=0": "scheme.replication=0 does not divide the 2 processes: choose one of 1, 2",
    "dataset=planetoid dataset.name=coral": "unknown Planetoid dataset 'coral': set dataset.name to one of cora, ",
    "dataset=npz dataset.name=coral": "'coral' is not public: set dataset.path, or dataset.name to one of ",
    "dataset=npz": "dataset=npz needs a file: set dataset.path=FILE.npz",
    "dataset=npz dataset.path=missing.npz": "missing.npz: set dataset.path to an existing .npz file",
    "dataset=synthetic dataset.num_nodes=100 dataset.num_edges=9000": "are denser than 20%",
    "dataset=synthetic dataset.train_fraction=2": "train_fraction",
    "dataset.seed=-4": "dataset.seed=-4 is negative: choose 0 or above",
    "model.dropout=1.5": "model.dropout=1.5 is not a dropout rate: it must lie in [0, 1)",
    "model.input_dropout=-0.5": "model.input_dropout=-0.5 is not a dropout rate: it must lie in [0, 1)",
    "model.num_layers=0": "model.num_layers=0 is too small: it must be at least 1",
    "model.hidden_channels=0": "model.hidden_channels=0 is too small: it must be at least 1",
}


def failure(world: World, overrides: list[str]) -> tuple[type, str]:
    """The type and the message of the error with which a run fails on this rank."""
    try:
        run_on(world, config(*overrides))
    except FullGNNError as error:
        return type(error), str(error)
    raise AssertionError("the run did not fail")


def assert_all_fail_alike(outcomes: list[tuple[type, str]], expected: str) -> None:
    assert len(set(outcomes)) == 1, outcomes
    _, message = outcomes[0]
    assert expected in message
    assert "\n" not in message


def test_text_of_a_file_is_one_short_printable_line() -> None:
    assert quoted("two\nlines \x1b[31m") == "two lines \\x1b[31m"
    assert quoted("ä" * 200) == "ä" * 200
    assert quoted("ä" * 201) == "ä" * 197 + "..."
    assert len(quoted("\0" * 10**6)) == MAX_QUOTED == 200
    assert quoted(None) == "None"


@pytest.mark.parametrize("case", BAD_FILES)
def test_every_rank_refuses_a_bad_file(ranks: Callable, tmp_path: Path, case: str) -> None:
    changes, expected = BAD_FILES[case]
    path = tmp_path / "graph.npz"
    np.savez(path, **arrays(**changes))
    outcomes = ranks(2)(failure, ["dataset=npz", f"dataset.path={path}", f"run_dir={tmp_path}/run"])
    assert_all_fail_alike(outcomes, expected)
    kind, message = outcomes[0]
    assert kind is DataError and (str(path) in message or message.startswith("dataset graph: "))


def test_every_rank_refuses_a_cut_or_foreign_file(ranks: Callable, tmp_path: Path) -> None:
    whole, cut, text = tmp_path / "whole.npz", tmp_path / "cut.npz", tmp_path / "text.npz"
    np.savez(whole, **SOUND)
    cut.write_bytes(whole.read_bytes()[:700])
    text.write_text("not numbers")
    for path in (cut, text):
        outcomes = ranks(2)(failure, ["dataset=npz", f"dataset.path={path}", f"run_dir={tmp_path}/{path.stem}"])
        assert_all_fail_alike(outcomes, f"{path} is no npz file, or a truncated one")


@pytest.mark.parametrize("overrides", BAD_VALUES)
def test_every_rank_refuses_a_bad_value(ranks: Callable, tmp_path: Path, overrides: str) -> None:
    arguments = [*overrides.split(), f"run_dir={tmp_path}/run"]
    if "dataset=npz" in arguments:
        arguments.append(f"dataset.root={tmp_path}")
    assert_all_fail_alike(ranks(2)(failure, arguments), BAD_VALUES[overrides])


def test_the_ranks_still_serve_after_all_that(ranks: Callable, tmp_path: Path) -> None:
    path = tmp_path / "graph.npz"
    np.savez(path, **SOUND)
    ranks(2)(trained, ["dataset=npz", f"dataset.path={path}", "train.epochs=1", f"run_dir={tmp_path}/run"])
    assert (tmp_path / "run" / "record.json").exists()


def trained(world: World, overrides: list[str]) -> float:
    return run_on(world, config(*overrides)).final_loss


def runtime(**changes: Any) -> RuntimeConfig:
    defaults = {"nproc": None, "device": "auto", "backend": "auto", "dtype": "float32", "threads": 1, "timeout_s": 30}
    return RuntimeConfig(**(defaults | changes))


@pytest.mark.parametrize(
    ("num_gpus", "nccl", "request_", "kind", "expected"),
    [
        (0, True, {"device": "cuda"}, UnsupportedError, "no GPU is visible here: use runtime.device=cpu"),
        (0, True, {"backend": "nccl"}, ConfigError, "runtime.backend=nccl needs GPUs: use runtime.backend=gloo"),
        (2, True, {"device": "cpu", "backend": "nccl"}, ConfigError, "needs GPUs: use runtime.backend=gloo"),
        (2, False, {}, UnsupportedError, "this torch has no NCCL: use runtime.backend=gloo"),
    ],
)
def test_what_a_machine_cannot_do(
    monkeypatch, num_gpus: int, nccl: bool, request_: dict, kind: type, expected: str
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_gpus)
    monkeypatch.setattr(dist, "is_nccl_available", lambda: nccl)
    _, _, problem = resolve(runtime(**request_))
    assert type(problem) is kind
    assert expected in str(problem) and "\n" not in str(problem)


@pytest.mark.parametrize(
    ("num_gpus", "request_", "expected"),
    [
        (0, {}, ("cpu", "gloo")),
        (2, {}, ("cuda", "nccl")),
        (1, {"backend": "gloo"}, ("cuda", "gloo")),  # ranks may share a GPU over gloo
        (2, {"device": "cpu"}, ("cpu", "gloo")),
    ],
)
def test_what_a_machine_can_do(monkeypatch, num_gpus: int, request_: dict, expected: tuple[str, str]) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_gpus)
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    assert resolve(runtime(**request_)) == (*expected, None)


def test_a_machine_that_lacks_something_stops_the_ranks_of_all_machines(ranks: Callable) -> None:
    """The machine of rank 1 has no GPU, that of rank 0 has one: both ranks raise rank 1's error."""
    outcomes = ranks(2)(rejoin)
    assert_all_fail_alike(outcomes, "runtime.backend=nccl needs GPUs: use runtime.backend=gloo")


def rejoin(world: World) -> tuple[type, str]:
    """Agree like ``init_world`` before it creates a process group, with a problem on rank 1 alone."""
    store = dist.PrefixStore("rejoin", dist.distributed_c10d._get_default_store())
    problem = resolve(runtime(device="cpu", backend="nccl"))[2] if world.rank == 1 else None
    try:
        joining.agree_to_join(store, joining.RankPlace(world.rank, world.size), problem, "")
    except FullGNNError as error:
        return type(error), str(error)
    raise AssertionError("no rank objected")


def test_a_failing_pymetis_is_said_and_replaced(monkeypatch, caplog) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)  # as if it were not installed
    monkeypatch.setattr(logging.getLogger("fullgnn"), "propagate", True)
    adj = csr_array(np.diag(np.ones(39), 1) + np.diag(np.ones(39), -1))
    with caplog.at_level("WARNING"):
        order, used = blockwise(
            adj, partial(metis, cluster_size=10), Cut.consecutive(Partition.equal(40, 1), "none"), 0
        )
    assert np.array_equal(order, rcm(adj, 0)) and used == "rcm"
    assert "falls back to rcm" in caplog.text


# Real command lines.


def assert_refused(done: Any, expected: str, ranks_: int) -> None:
    """Assert exit status 1 and one line with ``expected`` from each of ``ranks_`` ranks, or from the command alone."""
    assert done.status == 1, done.output
    assert len(done.errors) == ranks_, done.output
    for line in done.errors:
        assert expected in line
    prefixes = sorted(line.partition("error: ")[0] for line in done.errors)
    assert prefixes == sorted(["", *(f"[rank {rank}] " for rank in range(1, ranks_))])
    assert not any(text in done.output for text in ("Error executing job", "Terminating process"))


def test_own_ranks_each_say_why_and_end(tmp_path: Path) -> None:
    np.savez(tmp_path / "graph.npz", **arrays(attr_matrix=np.full((12, 12), np.inf)))
    done = run_command(OWN, "runtime.nproc=2", "dataset=npz", "dataset.path=graph.npz", cwd=tmp_path)
    assert_refused(done, "graph.npz: features hold NaN or Inf: clean or impute them first", 2)
    assert "Traceback" not in done.output


@pytest.mark.sample(6)
def test_torchrun_ranks_each_say_why_and_end(tmp_path: Path) -> None:
    arguments = ["-m", "fullgnn.train", "dataset=karate", "scheme=1.5d", "scheme.replication=2"]
    done = run_command(torchrun(3), *arguments, cwd=tmp_path)
    assert_refused(done, "scheme.replication=2 does not divide the 3 processes: choose one of 1, 3", 3)
    assert "fullgnn/train.py" not in done.output  # only torchrun's own traceback is printed


@pytest.mark.sample(6)
def test_torchrun_ranks_each_refuse_the_configuration(tmp_path: Path) -> None:
    done = run_command(torchrun(2), "-m", "fullgnn.train", "train.epoch=5", cwd=tmp_path)
    assert_refused(done, "unknown configuration key train.epoch: did you mean train.epochs?", 2)
    assert "fullgnn/train.py" not in done.output
    assert list(tmp_path.iterdir()) == []


def _with_little_memory() -> None:
    """Leave this process, and those that it starts, a GiB more than it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 30),) * 2)


@pytest.mark.parametrize("nproc", [1, 2])
@pytest.mark.parametrize(
    "keys",
    [
        ["model.hidden_channels=12000", "model.num_layers=3"],  # torch's own error, which is no MemoryError
        ["task=link_prediction", "task.num_candidates=1000000000000"],
    ],
)
def test_memory_that_is_too_little_for_a_rank_is_one_line_with_the_bytes(
    tmp_path: Path, nproc: int, keys: list[str]
) -> None:
    log = tmp_path / "log"
    command = start_command(
        OWN, "dataset=karate", f"runtime.nproc={nproc}", *keys, cwd=tmp_path, log=log, first=_with_little_memory
    )
    assert command.wait(timeout=100) == 1
    lines = log.read_text().splitlines()
    assert 1 <= len(lines) <= nproc, lines
    for line in lines:
        assert re.search(r"error: .* does not fit into memory \(\d{9,} more bytes were wanted, and \d+ bytes", line), (
            line
        )


@pytest.mark.sample(6)
def test_a_sweep_does_not_run_under_torchrun(tmp_path: Path) -> None:
    done = run_command(torchrun(2), "-m", "fullgnn.train", "-m", "seed=0,1", cwd=tmp_path)
    assert_refused(done, "a sweep starts its own processes: use python -m fullgnn.train -m ..., without torchrun", 2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["optimizer.lr=abc"], "optimizer.lr=abc does not fit: it takes a number"),
        (["-m", "scheme=1d,2d"], "scheme=2d is not known: choose one of 1.5d, 1d"),
        (
            ["-m", "seed=0,1", "run_dir=file/below"],
            "file/below cannot be written (Not a directory): choose another folder",
        ),
    ],
)
def test_the_command_itself_refuses(tmp_path: Path, arguments: list[str], expected: str) -> None:
    (tmp_path / "file").touch()
    done = run_command(OWN, *arguments, cwd=tmp_path)
    assert_refused(done, expected, 1)
    assert "Traceback" not in done.output
    assert not list(tmp_path.rglob("sweep.csv")), "the corrected command would be refused"


def test_ranks_on_the_cpu_refuse_nccl_and_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    nccl = run_command(OWN, "runtime.nproc=2", "runtime.device=cpu", "runtime.backend=nccl", cwd=tmp_path)
    assert_refused(nccl, "runtime.backend=nccl needs GPUs: use runtime.backend=gloo", 2)
    folder = run_command(OWN, "runtime.nproc=2", "dataset=karate", "run_dir=file", cwd=tmp_path)
    assert_refused(folder, "file cannot be written (Not a directory): choose another folder", 1)
    assert "Traceback" not in nccl.output + folder.output


def test_a_defect_shows_its_traceback_and_fails_its_job_alone(tmp_path: Path) -> None:
    (tmp_path / "defect.py").write_text("def load(path):\n    raise RuntimeError('a bug of\\nours')\n")
    run_dir = tmp_path / "sweep"
    arguments = [
        "-m",
        "dataset=karate",
        "+dataset.path=null",
        "runtime.nproc=2",
        "train.epochs=1",
        f"run_dir={run_dir}",
    ]
    done = run_command(
        OWN,
        *arguments,
        "dataset._target_=defect.load",
        *("~dataset.train_per_class", "~dataset.num_val", "~dataset.seed"),
        cwd=tmp_path,
        env=environment(tmp_path),
    )
    assert done.status == 1
    assert 'defect.py", line 2, in load' in done.output
    assert done.output.count("Traceback") == 1
    assert "failed: RuntimeError: a bug of ours" in done.output
    assert ",failed," in (run_dir / "sweep.csv").read_text()


def test_a_rank_alone_joins_and_leaves(monkeypatch) -> None:
    """``init_world`` leaves no process group behind, whatever happens inside."""
    for key, value in {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "MASTER_PORT": 0}.items():
        monkeypatch.setenv(key, str(value))
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    with pytest.raises(DataError), init_world(runtime(device="cpu")) as world:
        assert world.size == 1 and dist.is_initialized()
        raise DataError("on purpose")
    assert not dist.is_initialized()
