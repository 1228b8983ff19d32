"""What a user sees of the commands fits into a terminal of 80 columns."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from fullgnn.storage.folder import TABLE_FILE
from tests.commands import OWN, TIMEOUT_S, Finished, environment, run_command

pytestmark = pytest.mark.sample(2)  # its tests take seconds, or compile kernels

COLUMNS = 80
COMMANDS = ("train", "train_minibatch", "predict", "inspect", "plan", "prepare", "report", "bench", "reproduce")
CPU = ["runtime.device=cpu", "dataset=karate", "train.epochs=2"]


def wide(lines: list[str]) -> list[str]:
    return [line for line in lines if len(line) > COLUMNS]


def table_lines(done: Finished) -> list[str]:
    """The lines of the tables, with the line above each, which is its title."""
    lines = done.output.splitlines()
    rows = [k for k, line in enumerate(lines) if line.startswith("|")]
    assert done.status == 0 and rows, done.output
    return [lines[k] for k in sorted({*rows, *(k - 1 for k in rows)})]


@pytest.mark.sample(3)
@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_fits(command: str, tmp_path: Path) -> None:
    done = run_command([sys.executable, "-m", f"fullgnn.{command}"], "--help", cwd=tmp_path)
    assert done.status == 0 and done.output.strip() and not wide(done.output.splitlines())


@pytest.mark.sample(6)
@pytest.mark.parametrize("table", ["short", "full"])
@pytest.mark.parametrize("module", ["train", "train_minibatch"])
def test_closing_tables_fit(module: str, table: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", f"fullgnn.{module}"]
    planned = [] if module == "train_minibatch" else ["scheme=auto", "scheme.hardware=h200x8", "runtime.nproc=2"]
    done = run_command(command, *CPU, *planned, f"train.table={table}", cwd=tmp_path)
    assert not wide(table_lines(done))


@pytest.mark.sample(4)
def test_the_tables_of_a_sweep_fit_and_name_what_they_lack(tmp_path: Path) -> None:
    rates = ["0.01234567890123456789", "0.02345678901234567890"]
    swept = [f"optimizer.lr={','.join(rates)}", "model.hidden_channels=4,8", "seed=0,1"]
    done = run_command(OWN, "-m", *CPU, *swept, "run_dir=sweep", cwd=tmp_path)
    assert not wide(table_lines(done))
    assert "\n5: optimizer.lr=0.02345678901234568 model.hidden_channels=4 seed=1\n" in done.output
    assert f"{TABLE_FILE} also has imbalance" in done.output
    header = next(line for line in done.output.splitlines() if line.startswith("| job"))
    assert all(heading in header for heading in ("epoch ms", "val", "test"))
    legend = [line for line in done.output.splitlines() if re.match(r"#?\d+: ", line)]
    assert len(legend) == 12 and not wide(legend)


@pytest.mark.sample(4)
def test_the_page_of_a_plan_fits(tmp_path: Path) -> None:
    plan = [sys.executable, "-m", "fullgnn.plan"]
    arguments = ["dataset=karate", "hardware=h200x8", "nproc=1,4", "orders=none,rcm", "kernels=auto,torch"]
    done = run_command(plan, *arguments, "out=plan", "runtime.cache_dir=cache", cwd=tmp_path)
    lines = done.output.partition("Planned")[2].splitlines()
    assert done.status == 0 and not wide([line for line in lines if not line.startswith("/")])
    assert "plan.md also has the columns" in done.output and "| p |" in done.output
    command = re.sub(r"\\\n +", "", done.output.partition("Command:\n    ")[2]).splitlines()[0]
    assert command == f"Command: python -m fullgnn.plan {' '.join(arguments)} out=plan runtime.cache_dir=cache"[9:]
    assert command in (tmp_path / "plan" / "plan.md").read_text()


@pytest.mark.sample(8)
@pytest.mark.parametrize("columns", [80, 120])
def test_the_bar_fits_and_shows_loss_and_validation(columns: int, tmp_path: Path) -> None:
    shown, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    command = [*OWN, *CPU, "train.epochs=40", "run_dir=run"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=terminal, stderr=terminal)
    os.close(terminal)
    output = b""
    try:
        while True:
            try:
                output += os.read(shown, 1 << 16)
            except OSError:  # all ends of the terminal are closed
                break
        assert process.wait(TIMEOUT_S) == 0, output.decode()
    finally:
        process.kill()
        os.close(shown)
    text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", output.decode())
    bars = [line for line in re.split(r"[\r\n]+", text) if line.startswith("epoch: ")]
    assert len(bars) > 2 and max(map(len, bars)) <= columns
    assert "40/40" in bars[-1] and re.search(r", loss \d\.\d{4}  .*val \d+\.\d\d %.*\]$", bars[-1])
    assert ("ms/epoch" in bars[-1]) == (columns == 120)
