"""Runs end as they should: whatever process is stopped, killed or slow, and when the disk is full."""

import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fullgnn.storage import checkpoint
from tests.commands import OWN, environment, free_ports, run_command, start_command, torchrun
from tests.samples import sample_offset
from tests.trainings import LONG, NEW_PROCESSES, SLACK, TORCHRUN, WAYS, children, is_running, num_lines, training, wait

SLOW = ["dataset=karate", "dataset._target_=tests.slow_dataset.load", "~dataset.train_per_class", "~dataset.num_val"]
SLOW += ["~dataset.seed"]


def losses(run_dir: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (run_dir / "epochs.jsonl").read_text().splitlines()]


@pytest.mark.sample(6)
@pytest.mark.parametrize("num_machines", [1, 2])
def test_torchrun_restarts_a_run_whose_rank_is_killed(num_machines: int, tmp_path: Path) -> None:
    """The run folder is a relative path, as users type it. The restarted run ends with the uninterrupted losses. With
    two torchruns, as on two machines, each counts the restarts that its own ranks have caused, so that they differ."""
    keys = ["dataset=karate", "runtime.device=cpu", "runtime.threads=1", "train.epochs=400", "train.eval_every=0"]
    keys += ["train.checkpoint_every=20", "model.dropout=0.5"]
    nodes = ["--standalone"]
    if num_machines > 1:
        meeting = f"--rdzv-endpoint=localhost:{free_ports(1)[0]}"
        nodes = [f"--nnodes={num_machines}", "--rdzv-backend=c10d", meeting, "--rdzv-id=1"]
    ranks = f"--nproc-per-node={2 // num_machines}"
    command = [sys.executable, "-m", "torch.distributed.run", *nodes, ranks, "--max-restarts=2", "-m", "fullgnn.train"]
    logs = [tmp_path / f"log_{machine}" for machine in range(num_machines)]
    started = [start_command(command, *keys, "run_dir=run", "resume=auto", cwd=tmp_path, log=log) for log in logs]
    try:
        epochs = tmp_path / "run" / "epochs.jsonl"
        wait(lambda: num_lines(epochs) > 90 or any(process.poll() is not None for process in started), 100)
        os.kill(children(started[-1].pid)[-1], signal.SIGKILL)
        assert [process.wait(100) for process in started] == [0] * num_machines, [log.read_text() for log in logs]
    finally:
        for process in started:
            process.kill()
    output = "".join(log.read_text() for log in logs)
    (resumed,) = re.findall(r"resumes after epoch (\d+) of ", output)
    assert 80 <= int(resumed) < 400, output
    assert run_command(OWN, *keys, "runtime.nproc=2", "run_dir=whole", cwd=tmp_path).status == 0
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")


def test_a_restart_without_resume_says_what_it_needs(tmp_path: Path) -> None:
    first = run_command(OWN, "dataset=karate", "train.epochs=1", "run_dir=run", cwd=tmp_path)
    assert first.status == 0, first.output
    env = environment(TORCHELASTIC_RESTART_COUNT="1")
    again = run_command(OWN, "dataset=karate", "train.epochs=1", "run_dir=run", cwd=tmp_path, env=env)
    (line,) = again.errors
    assert line.endswith("torchrun has started the ranks again: resume=auto goes on then")


def test_resume_knows_a_run_folder_by_any_of_its_paths(tmp_path: Path) -> None:
    keys = ["dataset=karate", "train.checkpoint_every=2"]
    assert run_command(OWN, *keys, "train.epochs=2", "run_dir=run", cwd=tmp_path).status == 0
    (tmp_path / "link").symlink_to("run")
    (tmp_path / "below").mkdir()
    for epochs, (run_dir, resume) in enumerate([("link", "auto"), ("below/../run", "link"), ("./run", "run")], 3):
        done = run_command(OWN, *keys, f"train.epochs={epochs}", f"run_dir={run_dir}", f"resume={resume}", cwd=tmp_path)
        assert done.status == 0, done.output
        assert len(losses(tmp_path / "run")) == epochs


SAMPLED = ["sampler.fanouts=[4,3]", "loader.batch_size=6"]


@pytest.mark.sample(10)
@pytest.mark.parametrize(
    ("command", "keys"),
    [
        (OWN, ["+dataset.seconds=6"]),
        (TORCHRUN, ["+dataset.seconds=12"]),
        (OWN, ["+dataset.seconds=6", "scheme=auto", "scheme.hardware=h200x8"]),
        ([sys.executable, "-m", "fullgnn.train_minibatch"], ["+dataset.seconds=6", *SAMPLED]),
        (OWN, ["train.checkpoint_every=1"]),
    ],
    ids=["own", "torchrun", "planning", "sampled", "checkpoint"],
)
def test_ranks_wait_for_work_of_rank_0_that_is_longer_than_their_timeout(
    tmp_path: Path, command: list[str], keys: list[str]
) -> None:
    timeout_s = 8 if command is TORCHRUN else 3  # the imports of two ranks may end seconds apart
    keys = [*SLOW, *keys, f"runtime.timeout_s={timeout_s}", "train.epochs=2", "runtime.nproc=2", "run_dir=run"]
    first = slow_disk if keys[len(SLOW)].startswith("train.checkpoint") else None
    process = start_command(command, *keys, cwd=tmp_path, log=tmp_path / "log", first=first)
    assert process.wait(90) == 0, (tmp_path / "log").read_text()
    assert len(losses(tmp_path / "run")) == 2


def slow_disk() -> None:
    """Let this process and its forks take seconds for each checkpoint."""
    flush = checkpoint.flush_file

    def slowly(folder: Path) -> None:
        time.sleep(4)
        flush(folder)

    checkpoint.flush_file = slowly


@pytest.mark.sample(0)
def test_a_finished_run_is_not_trained_again_under_torchrun(tmp_path: Path) -> None:
    keys = ["dataset=karate", "train.epochs=2", "runtime.nproc=2", "run_dir=run", "resume=auto"]
    for command in (OWN, TORCHRUN):
        done = run_command(command, *keys, cwd=tmp_path)
        assert done.status == 0, done.output
    assert "holds this run already, which has finished" in done.output


@pytest.mark.sample(2)
@pytest.mark.parametrize("which", ["rank 0", "rank 1", "preparation"])
def test_a_process_that_is_stopped_while_the_graph_is_prepared(tmp_path: Path, which: str) -> None:
    keys = [*SLOW, "+dataset.seconds=" + ("1.5" if which == "rank 1" else "60"), "runtime.timeout_s=2"]
    with training(tmp_path, OWN, *keys, num_epochs=0) as run:
        time.sleep(1)
        pid = run.ranks[1] if which == "rank 1" else run.ranks[0]
        if which == "preparation":
            (pid,) = children(pid)
        os.kill(pid, signal.SIGSTOP)
        begin = time.monotonic()
        assert run.process.wait(timeout=30) == 1, run.output
        assert time.monotonic() - begin < SLACK * (2 + 5)
        (line,) = {line.removeprefix("[rank 1] ") for line in run.output.splitlines() if "error: " in line}
        said = f"error: {which} (process {pid} on "
        if which == "preparation":
            said = (
                f"error: the process that prepares the graph (process {pid}) has been stopped for runtime.timeout_s=2"
            )
        assert line.startswith(said) and "runtime.timeout_s=2 s" in line


@pytest.mark.parametrize(
    ("way", "rank", "keys"),
    [
        ("forked", 1, []),
        pytest.param("torchrun", 1, [], marks=NEW_PROCESSES),
        pytest.param("forked", 0, ["scheme.shared_memory=false"], marks=pytest.mark.sample(3)),
        pytest.param("launched", 0, [], marks=NEW_PROCESSES),
    ],
)
def test_a_rank_that_is_stopped_in_an_epoch_is_named(tmp_path: Path, way: str, rank: int, keys: list[str]) -> None:
    timeout_s = 2 if way == "forked" else 6  # new processes wait so long, too, for one that imports more slowly
    with training(tmp_path, WAYS[way], LONG, f"runtime.timeout_s={timeout_s}", "train.eval_every=0", *keys) as run:
        pid = run.ranks[rank]
        os.kill(pid, signal.SIGSTOP)
        begin = time.monotonic()
        assert run.process.wait(timeout=40) == 1
        assert time.monotonic() - begin < SLACK * (timeout_s + 5), run.output
        (line,) = [line for line in run.output.splitlines() if "error: " in line]
        assert f"error: rank {rank} (process {pid} on " in line
        assert f"did not answer within runtime.timeout_s={timeout_s} s" in line
        assert not any(map(is_running, run.ranks))


@pytest.mark.sample(4)
@pytest.mark.parametrize("delay_s", [0.0, 1.0])
def test_ranks_end_whose_launcher_is_killed_while_they_import(tmp_path: Path, delay_s: float) -> None:
    process = start_command(TORCHRUN, LONG, "dataset=karate", "run_dir=run", cwd=tmp_path, log=tmp_path / "log")
    ranks: list[int] = []
    try:
        wait(lambda: len(children(process.pid)) == 2, 60)
        ranks = children(process.pid)
        time.sleep(delay_s)
    finally:
        process.kill()
    wait(lambda: not any(map(is_running, ranks)), SLACK * 5)


def in_a_container() -> list[str]:
    """What is put before a command so that it is process 1, and sees the processes that it starts alone."""
    inside = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*inside, "true"], capture_output=True).returncode:
        pytest.skip("this user may not make a namespace of process ids")
    return inside


@pytest.mark.sample(0)
def test_torchrun_may_be_process_1(tmp_path: Path) -> None:
    """As in a container. Its ranks train, and end with it."""
    inside = in_a_container()
    keys = ["dataset=karate", "runtime.device=cpu"]
    done = run_command([*inside, *TORCHRUN], *keys, "train.epochs=2", "run_dir=run", cwd=tmp_path)
    assert done.status == 0, done.output
    process = start_command([*inside, *TORCHRUN], *keys, LONG, "run_dir=long", cwd=tmp_path, log=tmp_path / "log")
    wait(lambda: num_lines(tmp_path / "long" / "epochs.jsonl") or process.poll() is not None, 60)
    (first,) = children(process.pid)
    ranks = children(first)
    assert len(ranks) == 2, (tmp_path / "log").read_text()
    os.kill(first, signal.SIGKILL)
    wait(lambda: not any(map(is_running, ranks)), SLACK * 5)
    process.wait(10)


@pytest.mark.sample(0)
def test_a_machine_that_is_lost_is_one_line(tmp_path: Path) -> None:
    """Two torchruns that do not see each other's processes, as on two machines. The one that does not keep the store is
    killed with its rank; without the store, torchrun itself ends."""
    inside = in_a_container()
    meeting = [f"--rdzv-endpoint=localhost:{free_ports(1)[0]}", "--rdzv-backend=c10d", "--rdzv-id=1"]
    nodes = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1", *meeting]
    keys = ["-m", "fullgnn.train", "dataset=karate", "runtime.device=cpu", LONG, "run_dir=run"]
    logs = [tmp_path / f"log_{number}" for number in (0, 1)]
    started = [
        start_command(
            [*inside, *nodes, f"--local-addr=127.0.0.{number + 1}", f"--rdzv-conf=is_host={number == 0}", *keys],
            cwd=tmp_path,
            log=log,
        )
        for number, log in enumerate(logs)
    ]
    try:
        ended = [process.poll for process in started]
        wait(lambda: num_lines(tmp_path / "run" / "epochs.jsonl") or any(end() is not None for end in ended), 100)
        started[1].kill()
        assert started[0].wait(60) == 1
    finally:
        for process in started:
            process.kill()
    output = logs[0].read_text()
    (line,) = [line for line in output.splitlines() if "error: " in line]
    assert re.search(r"error: rank \d \(process \d+ on \S+\) has ended, or its machine cannot be reached: start", line)
    assert "gloo" not in output


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    """A disk of a few ``kilobytes``, mounted below ``folder``."""
    disk = folder / "disk"
    disk.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", disk], capture_output=True
    ).returncode:
        pytest.skip("this user may not mount a disk")
    try:
        yield disk
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("module", "keys"),
    [
        ("fullgnn.train", ["train.checkpoint_every=20"]),
        ("fullgnn.train_minibatch", ["sampler.fanouts=[4,3]"]),
        ("fullgnn.train", ["train.tensorboard=true"]),
    ],
)
def test_a_full_disk_is_one_line_and_what_is_there_stays_valid(tmp_path: Path, module: str, keys: list[str]) -> None:
    keys = ["dataset=karate", "runtime.device=cpu", "runtime.nproc=2", "train.epochs=300", "train.eval_every=0", *keys]
    with small_disk(tmp_path, 60) as disk:
        run = [sys.executable, "-m", module]
        full = run_command(run, *keys, f"run_dir={disk}/run", cwd=tmp_path)
        assert full.status == 1 and "Traceback" not in full.output, full.output
        assert len({line.removeprefix("[rank 1] ") for line in full.errors}) == 1, full.output
        assert f"error: run_dir={disk}/run cannot be written (No space left on device), and what" in full.errors[0]
        begun = losses(disk / "run")
        assert not (disk / "run" / "record.json").exists() and (disk / "run" / "epochs.jsonl").read_text()[-1] == "\n"
        subprocess.run(["mount", "-o", "remount,size=4m", disk], check=True)
        again = run_command(run, *keys, f"run_dir={disk}/run", "resume=auto", cwd=tmp_path)
        assert again.status == 0, again.output
        assert losses(disk / "run")[: len(begun)] == begun and len(losses(disk / "run")) == 300


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("out", ["fullgnn.plan", "dataset=karate", "hardware=h200x8", "nproc=1"]),
        ("out", ["fullgnn.bench", "op=spmm", "graph=tiny", "peers=[]", "widths=[16]", "warmup=0", "rounds=1"]),
        ("out", ["fullgnn.predict", "checkpoint=trained", "runtime.device=cpu", "runtime.nproc=2"]),
        ("runtime.cache_dir", ["fullgnn.prepare", "dataset=digits"]),
    ],
)
def test_results_for_which_the_disk_has_no_room_are_one_line(tmp_path: Path, key: str, words: list[str]) -> None:
    if "checkpoint=trained" in words:
        keys = ["dataset=karate", "runtime.device=cpu", "train.epochs=1", "train.checkpoint_every=1"]
        assert run_command(OWN, *keys, "run_dir=trained", cwd=tmp_path).status == 0
    with small_disk(tmp_path, 4) as disk:
        done = run_command([sys.executable, "-m", *words], f"{key}={disk}/out", cwd=tmp_path)
        assert done.status == 1 and "Traceback" not in done.output, done.output
        assert len({line.removeprefix("[rank 1] ") for line in done.errors}) == 1, done.output
        assert "cannot be written" in done.errors[0] and "(No space left on device): choose another" in done.errors[0]
        assert not list(disk.rglob(".*"))  # a file is complete or not there


def test_a_segmentation_fault_of_the_preparation_is_not_a_lack_of_memory(tmp_path: Path) -> None:
    keys = [*SLOW, f"+dataset.end_by={int(signal.SIGSEGV)}", "runtime.nproc=2", "run_dir=run"]
    done = run_command(OWN, *keys, cwd=tmp_path)
    assert done.status == 1 and "Traceback" not in done.output, done.output
    assert "error: the process that prepares the graph was ended by SIGSEGV: start again" in done.errors[0]
    assert "memory" not in "".join(done.errors)


def test_ctrl_c_during_the_imports_is_one_line(tmp_path: Path) -> None:
    for module in ("train", "plan"):
        line = [sys.executable, "-X", "importtime", "-m", f"fullgnn.{module}", "dataset=karate", f"run_dir={module}"]
        process = subprocess.Popen(line, cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        for imported in process.stderr:  # wait until the import of fullgnn has come to torch
            if "torch._C" in imported:
                break
        process.send_signal(signal.SIGINT)
        rest = [rest_line for rest_line in process.stderr if not rest_line.startswith("import time:")]
        assert (process.wait(30), rest) == (128 + signal.SIGINT, ["stopped before the run began\n"])


def test_what_a_killed_launcher_leaves_goes_at_the_next_start(tmp_path: Path) -> None:
    env = environment(TMPDIR=str(tmp_path))
    keys = ["dataset=karate", "runtime.nproc=2", "runtime.device=cpu"]
    (tmp_path / "fullgnn-mine").mkdir()  # it has no lock, so it is not fullgnn's
    process = start_command(OWN, *keys, LONG, "run_dir=killed", cwd=tmp_path, log=tmp_path / "log", env=env)
    wait(lambda: num_lines(tmp_path / "killed" / "epochs.jsonl") or process.poll() is not None, 60)
    ranks = children(process.pid)
    process.kill()
    process.wait()
    wait(lambda: not any(map(is_running, ranks)), SLACK * 5)
    assert len(list(tmp_path.glob("fullgnn-*"))) >= 2
    assert run_command(OWN, *keys, "train.epochs=1", "run_dir=next", cwd=tmp_path, env=env).status == 0
    assert [path.name for path in tmp_path.glob("fullgnn-*")] == ["fullgnn-mine"]


def _no_core_files() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


# Which process is killed: of the job, by the way in which it was started.
VICTIMS: dict[str, Callable[[int], list[int]]] = {
    "launcher": lambda launcher: [launcher],
    "ranks": children,
    "below": lambda launcher: [pid for rank in children(launcher) for pid in children(rank)],
}


def killed(
    command: list[str],
    arguments: list[str],
    folder: Path,
    victims: Callable[[int], list[int]],
    number: signal.Signals,
    delay_s: float,
    rng: random.Random,
) -> str:
    """Start a command, send a signal to one of its processes ``delay_s`` seconds after it has ranks, and wait until
    nothing of it runs. Returns what it has printed."""
    log, there = folder / "log", list[int]()
    process = start_command(command, *arguments, cwd=folder, log=log, first=_no_core_files)
    try:
        wait(lambda: children(process.pid) or process.poll() is not None, 60)
        time.sleep(delay_s)
        if process.poll() is None and (there := victims(process.pid)):
            os.kill(rng.choice(there), number)
        process.wait(90)
        wait(lambda: not any(map(is_running, there)), 10)
    finally:
        process.kill()
    return log.read_text()


@pytest.mark.sample(0)
@pytest.mark.timeout(900)
@pytest.mark.parametrize("module", ["fullgnn.train", "fullgnn.train_minibatch"])
def test_whatever_is_killed_at_whatever_moment_resumes_to_the_uninterrupted_curve(tmp_path: Path, module: str) -> None:
    """10 SIGKILLs and 3 SIGTERMs, half of them to each command, which take turns with the number of commits: of ranks,
    the launcher, the process that prepares the graph and sampling workers, with each launcher, at random moments of a
    run of a few seconds."""
    rng = random.Random(0)
    keys = ["dataset=digits", "runtime.device=cpu", "runtime.threads=1", "model.dropout=0.5", "train.eval_every=10"]
    keys += ["train.epochs=60", "train.checkpoint_every=3"]
    if module == "fullgnn.train_minibatch":
        keys += [
            "loader.num_workers=1",
            "loader.batch_size=200",
            "sampler.fanouts=[4,3]",
            "train.checkpoint_every_batches=2",
        ]
    own = [sys.executable, "-m", module]
    with_restarts = [*torchrun(2)[:-1], "--max-restarts=3", torchrun(2)[-1], "-m", module]
    ways = {"own": [*own, "runtime.nproc=2"], "torchrun": [*torchrun(2), "-m", module], "restarts": with_restarts}
    whole = run_command(ways["own"], *keys, "run_dir=whole", cwd=tmp_path)
    assert whole.status == 0, whole.output
    expected = losses(tmp_path / "whole")
    kills = [("SIGKILL", way, victim) for way in ways for victim in VICTIMS] + [("SIGKILL", "own", "ranks")]
    terms = [("SIGTERM", way, "launcher") for way in ("own", "torchrun")] + [("SIGTERM", "own", "ranks")]
    for number, (name, way, victim) in enumerate([*kills, *terms]):
        folder = tmp_path / f"run_{number}"
        arguments = [*keys, f"run_dir={folder}", "resume=auto"]
        delay_s = rng.uniform(0, 4 if way == "own" else 6)
        if (number + sample_offset()) % 2 == (module == "fullgnn.train"):
            continue
        text = killed(ways[way], arguments, tmp_path, VICTIMS[victim], signal.Signals[name], delay_s, rng)
        done = run_command(ways["own"], *arguments, cwd=tmp_path)
        assert done.status == 0, (number, name, way, victim, text, done.output)
        assert losses(folder) == expected, (number, name, way, victim, text)
