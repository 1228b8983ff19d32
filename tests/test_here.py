"""train_graph in the calling process: fast, the same run as in a process of its own, and no trace in the caller."""

import gc
import logging
import os
import random
import resource
import signal
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from fullgnn import here
from fullgnn.api import train_graph
from fullgnn.distributed.mesh import num_cores
from fullgnn.errors import ConfigError, DataError, FullGNNError
from fullgnn.nn import Contract, GCNConv
from fullgnn.storage.record import RunRecord, read_record
from tests.calls_here import CPU, club, comparable, curve


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tests run in a folder of their own, and have temporary files beside it."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def state_of_caller() -> dict[str, Any]:
    """What the caller has set, in this process."""
    package = logging.getLogger("fullgnn")
    return {
        "threads": torch.get_num_threads(),
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "deterministic": torch.get_deterministic_debug_mode(),
        "precision": torch.get_float32_matmul_precision(),
        "anomaly": torch.is_anomaly_enabled(),
        "torch": torch.get_rng_state().tolist(),
        "numpy": [np.asarray(part).tolist() for part in np.random.get_state()],
        "random": random.getstate(),
        "errors": np.geterr(),
        "environment": dict(os.environ),
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)],
        "hook": sys.excepthook,
        "logger": (package.handlers, package.level, package.propagate),
        "joined": dist.is_initialized(),
    }


def leftovers() -> dict[str, Any]:
    """What a run could leave open: files, threads of Python, temporary folders."""
    gc.collect()
    deadline = time.monotonic() + 5
    while any(thread.name.startswith("fullgnn") for thread in threading.enumerate()) and time.monotonic() < deadline:
        time.sleep(0.01)  # a thread that has been asked to end takes a moment
    return {
        "files": len(os.listdir("/proc/self/fd")),
        "threads": [thread.name for thread in threading.enumerate()],
        "folders": [name for name in os.listdir(tempfile.gettempdir()) if name.startswith("fullgnn")],
    }


@pytest.fixture(scope="module", autouse=True)
def no_objects_of_other_tests() -> None:
    """A call ends with a search for garbage among all objects of its process, and thousands of tests may have run in
    this one: the search leaves out what they have left."""
    gc.collect()
    gc.freeze()


def test_calls_are_fast_and_equal_to_a_launched_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later call takes a small part of the CPU time that other processes need, at most a second where nothing else
    runs; the fifth is equal to the first, and to a run in processes of its own."""
    seconds, records = list[float](), []

    def train(run_dir: str) -> None:
        before = cpu_seconds()
        records.append(train_graph(club(), CPU, run_dir=run_dir))
        seconds.append(cpu_seconds() - before)

    for number in range(5):
        train(f"run{number}")
    monkeypatch.setattr(here, "why_elsewhere", lambda cfg: "the test says so")
    train("launched")
    *_, launched = seconds
    assert max(seconds[1:5]) < launched / 2, seconds
    for record, name in zip(records, [*(f"run{number}" for number in range(5)), "launched"], strict=True):
        assert curve(name) == curve("run0") and len(curve(name)) == 6
        assert comparable(record) == comparable(records[0])
        assert record.run_dir == str(Path(name).absolute()) and record == read_record(Path(name))
        assert set(os.listdir(name)) == set(os.listdir("run0"))


def test_what_the_caller_has_set_changes_nothing_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    train_graph(club(), CPU, model=drawing(), run_dir="plain")
    before = leftovers()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("WORLD_SIZE", "7")
    precision = torch.get_float32_matmul_precision()
    with ExitStack() as stack:
        stack.callback(torch.set_float32_matmul_precision, precision)
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        stack.callback(torch.set_deterministic_debug_mode, "default")
        torch.set_float32_matmul_precision("medium")
        torch.set_default_dtype(torch.float64)
        torch.set_deterministic_debug_mode("warn")
        torch.set_num_threads(1)
        torch.manual_seed(5)
        np.random.seed(6)
        random.seed(7)
        stack.enter_context(np.errstate(all="raise"))
        stack.enter_context(torch.autocast("cpu"))
        stack.enter_context(torch.device("meta"))
        stack.enter_context(torch.inference_mode())
        state = state_of_caller()
        record = train_graph(club(), CPU, {"optimizer": "sgd", "optimizer.lr": 0.01}, model=drawing(), run_dir="sgd")
        assert state_of_caller() == state
        train_graph(club(), CPU, model=drawing(), run_dir="again")
        assert state_of_caller() == state
        with pytest.raises(FullGNNError):
            train_graph(club(), CPU, {"model.heads": 3}, model="gcn")
        with pytest.raises(RuntimeError, match="the model fails"):
            train_graph(club(), CPU, model=failing(RuntimeError("the model fails")), run_dir="failing")
        assert state_of_caller() == state
    assert curve("again") == curve("plain") and record.threads == num_cores()
    assert leftovers() == before


def drawing() -> type[torch.nn.Module]:
    """A class of models that draw from the random states of the process."""

    class Drawing(torch.nn.Module):
        def __init__(self, in_channels: int, out_channels: int, seed: int):
            super().__init__()
            self.conv = GCNConv(in_channels, out_channels, torch.Generator().manual_seed(seed))
            self.scale = torch.nn.Parameter(torch.randn(out_channels) + np.random.rand() + random.random())

        def contract(self) -> Contract:
            return Contract(num_blocks=1, restricts_output=True)

        def forward(self, x: torch.Tensor, blocks: list) -> torch.Tensor:
            return self.conv(x, blocks[0]) * self.scale

    return Drawing


def failing(error: BaseException | int, after: int = 3) -> type[torch.nn.Module]:
    """A class of models that raise ``error`` in training step ``after``, or send this process such a signal; step 0
    is when they are built."""

    def fail() -> None:
        if isinstance(error, int):
            os.kill(os.getpid(), error)
        else:
            raise error

    class Failing(drawing()):  # type: ignore[misc]
        steps = 0

        def __init__(self, in_channels: int, out_channels: int, seed: int):
            super().__init__(in_channels, out_channels, seed)
            if not after:
                fail()

        def forward(self, x: torch.Tensor, blocks: list) -> torch.Tensor:
            Failing.steps += self.training
            if self.training and Failing.steps == after:
                fail()
            return super().forward(x, blocks)

    Failing.__qualname__ = "Net"
    return Failing


@pytest.mark.parametrize(("number", "kind"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_signal_writes_a_checkpoint_and_leaves_as_what_it_is(number: int, kind: type) -> None:
    state, before = state_of_caller(), leftovers()
    with pytest.raises(kind) as stopped:
        train_graph(club(), CPU, model=failing(number), run_dir="run")
    assert stopped.value.__cause__ is None and stopped.value.__suppress_context__ | (not stopped.value.__context__)
    assert kind is not SystemExit or stopped.value.code == 128 + number  # type: ignore[attr-defined]
    assert state_of_caller() == state and leftovers() == before
    assert os.listdir("run/checkpoints") == ["epoch_000004"] and Path("run/graph.npz").is_file()
    record = train_graph(club(), CPU, model=failing(signal.SIGCONT, after=-1), run_dir="run", resume="auto")
    train_graph(club(), CPU, model=failing(signal.SIGCONT, after=-1), run_dir="whole")
    assert record.resumed_after == 4 and curve("run") == curve("whole")


def test_a_signal_before_the_training_leaves_no_run() -> None:
    state, before = state_of_caller(), leftovers()
    for number, kind in ((signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)):
        with pytest.raises(kind):
            train_graph(club(), CPU, model=failing(number, after=0), run_dir="run")
    assert state_of_caller() == state and leftovers() == before and not Path("run").exists()


def test_a_second_signal_raises_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fullgnn.distributed.launch.REPEATED_AFTER_S", 0.0)

    class Twice(failing(signal.SIGINT, after=2)):  # type: ignore[misc]
        def forward(self, x: torch.Tensor, blocks: list) -> torch.Tensor:
            result = super().forward(x, blocks)
            if self.training and self.steps == 2:
                os.kill(os.getpid(), signal.SIGINT)
                pytest.fail("the second signal has not raised")
            return result

    with pytest.raises(KeyboardInterrupt):
        train_graph(club(), CPU, model=Twice, run_dir="run")
    assert not Path("run/checkpoints").exists()


def test_a_thread_that_is_not_the_main_one() -> None:
    records: list[RunRecord] = []
    thread = threading.Thread(target=lambda: records.append(train_graph(club(), CPU, run_dir="thread")))
    thread.start()
    thread.join()
    train_graph(club(), CPU, run_dir="main")
    assert len(records) == 1 and curve("thread") == curve("main")


def test_a_thread_beside_another_run_starts_a_process(launches: list) -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Waiting(drawing()):  # type: ignore[misc]
        def forward(self, x: torch.Tensor, blocks: list) -> torch.Tensor:
            begun.set()
            assert go_on.wait(60)
            return super().forward(x, blocks)

    thread = threading.Thread(target=lambda: train_graph(club(), CPU, model=Waiting, run_dir="first"))
    thread.start()
    assert begun.wait(60)
    train_graph(club(), CPU, run_dir="second")
    with pytest.raises(ConfigError, match="another thread of this process trains"):
        train_graph(club(), CPU, model=drawing(), run_dir="third")
    with pytest.raises(ConfigError, match="metric zero has no name in a module.* another thread of this process"):
        train_graph(club(), CPU, run_dir="fourth", metrics={"zero": lambda *_: 0.0})
    go_on.set()
    thread.join()
    assert len(launches) == 1 and read_record(Path("first")).epochs == 6


def test_where_torch_distributed_is_in_use_a_process_is_started(launches: list) -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        train_graph(club(), CPU)
        with pytest.raises(ConfigError, match=r"move it to a module; .* call torch.distributed.destroy_process_group"):
            train_graph(club(), CPU, model=drawing())
        assert dist.is_initialized()
    finally:
        dist.destroy_process_group()
    assert len(launches) == 1


def test_a_dry_run_and_several_ranks_are_launched(launches: list) -> None:
    train_graph(club(), CPU, {"runtime.dry_run": True, "world_size": 3})
    train_graph(club(), CPU, {"runtime.nproc": 2})
    assert len(launches) == 2


def test_a_logger_of_the_caller_is_used(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture) -> None:
    package = logging.getLogger("fullgnn")
    before = package.handlers, package.level, package.propagate
    try:
        package.handlers, package.propagate = [], True
        package.setLevel(logging.WARNING)
        train_graph(club(), CPU, run_dir="quiet")
        assert "epoch" not in capfd.readouterr().err and not caplog.records
        package.setLevel(logging.NOTSET)
        train_graph(club(), CPU, run_dir="told")
        assert "epoch 6/6" in capfd.readouterr().err
        assert (package.handlers, package.level, package.propagate) == ([], logging.NOTSET, True)
    finally:
        package.handlers, package.propagate = before[0], before[2]
        package.setLevel(before[1])


def test_too_little_memory_is_one_line() -> None:
    with pytest.raises(DataError, match="does not fit into memory") as error:
        train_graph(club(), CPU, model=failing(MemoryError()), run_dir="run")
    assert "\n" not in str(error.value)
