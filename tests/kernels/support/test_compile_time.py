"""Compiling is timed where it happens, and told while a training waits for it; a kernel from the cache is not."""

import logging
import re
from pathlib import Path

import numba
import pytest

from fullgnn.engine import run_folder
from fullgnn.engine.run_folder import CompilingRemark
from fullgnn.kernels.support import compile_time
from fullgnn.kernels.support.compile_time import compile_clock, waited
from fullgnn.telemetry.meter import Cost, EpochRecord
from tests.commands import OWN, environment, run_command, torchrun

LINE = r"(?m)^compiling kernels took (\d+\.\d) s of the first epoch; later runs find them in a cache$"


def test_a_clock_counts_what_is_compiled_once_and_in_its_block() -> None:
    inner = numba.njit(lambda x: x + 1)
    outer = numba.njit(lambda x: inner(x) + 1)
    other = numba.njit(lambda x: x * 2)
    told: list[float] = []
    with compile_clock(lambda: told.append(1.0)) as clock:
        assert outer(1) == 3
        once = clock.seconds
        assert once > 0 and not clock.is_kept
        assert outer(2) == 4 and clock.seconds == once
    assert other(3) == 6 and clock.seconds == once
    assert not compile_time.clocks


def test_a_clock_tells_once_that_it_lasts() -> None:
    told = []
    with compile_clock(lambda: told.append("lasts")) as clock:
        for _ in range(4):
            waited(0.4)
    waited(5.0)
    assert told == ["lasts"] and clock.seconds == pytest.approx(1.6)


def test_a_remark_is_of_the_first_epoch(caplog, monkeypatch) -> None:
    monkeypatch.setattr(logging.getLogger("fullgnn"), "propagate", True)
    caplog.set_level(logging.INFO, "fullgnn")
    record = EpochRecord(1, 0.5, Cost({"epoch": 1.0}, {}), None)
    for seconds in (0.3, 0.7, 3.25):
        caplog.clear()
        remark = CompilingRemark()
        waited(seconds)
        remark.add_epoch(record)
        waited(10.0)
        remark.add_epoch(record)
        remark.close()
        took = [f"compiling kernels took {seconds:.1f} s of the first epoch; later runs find them in a cache"]
        begins = ["compiling kernels for this machine, which takes some seconds ..."]
        assert caplog.messages == begins * (seconds > 1) + took * (seconds >= run_folder.LEAST_COMPILING_S)


@pytest.mark.sample(8)
@pytest.mark.parametrize("command", [OWN, [*torchrun(2), "-m", "fullgnn.train"]], ids=["own", "torchrun"])
def test_a_first_run_says_how_long_it_compiles_and_a_second_one_does_not(command: list[str], tmp_path: Path) -> None:
    env = environment(NUMBA_CACHE_DIR=str(tmp_path / "cache"))  # numba reads it when it is imported
    run = ["dataset=karate", "runtime.device=cpu", "runtime.nproc=2", "train.epochs=2"]
    for number in (1, 2):
        done = run_command(command, *run, f"run_dir=run{number}", cwd=tmp_path, env=env, new=True)
        assert done.status == 0, done.output
        seconds = re.findall(LINE, done.output)
        assert len(seconds) == (number == 1) and done.output.count("compiling kernels for") == (number == 1)
        if seconds:
            first = re.search(r"epoch 1/2 .* (\d+\.\d) ms/epoch", done.output)
            assert first is not None and 0.5 <= float(seconds[0]) and done.output.index("took") < first.start()
