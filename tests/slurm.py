"""Slurm: the variables that it sets, and a cluster of two nodes on this machine where its programs are installed."""

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fullgnn.startup import end_with_launcher
from tests.commands import environment, free_ports

JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "SLURM_NTASKS": "2", "SLURM_NPROCS": "2"}
SALLOC = {**JOB, "SLURM_TASKS_PER_NODE": "2"}
SBATCH = {**SALLOC, "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_TASK_PID": "100", "SLURM_CPUS_ON_NODE": "2"}
STEP = {**SBATCH, "SLURM_STEP_ID": "0", "SLURM_STEPID": "0", "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NODELIST": "a"}
SRUN = {**STEP, "SLURM_STEP_NUM_TASKS": "2"}
"""What Slurm 22.05 sets: in the shell of salloc, in a batch script, and in the first of two tasks of srun."""

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "salloc", "scontrol", "scancel")

CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
ProctrackType=proctrack/pgid
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1,sched_min_interval=0
GresTypes=gpu
NodeName={host} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4 Gres=gpu:2
NodeName={host}-second NodeHostname={host}-second NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4 Gres=gpu:2
PartitionName=all Nodes=ALL Default=YES State=UP
"""
"""The first node has the name of this machine, so that ranks find it. Each node claims four cores and two GPUs, which
need not exist: a file stands in the place of a GPU."""


@dataclass(frozen=True)
class Cluster:
    """A running cluster of two nodes."""

    env: dict[str, str]

    def run(self, *words: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, as a user of the cluster."""
        env = self.env | variables
        return subprocess.run(words, cwd=cwd, env=env, text=True, capture_output=True, timeout=200)

    def submit(self, *words: str, cwd: Path, **variables: str) -> str:
        """Give a job to sbatch. Returns: its id."""
        done = self.run("sbatch", "--parsable", *words, cwd=cwd, **variables)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def wait_for(self, job: str, cwd: Path, timeout_s: float = 150) -> str:
        """Wait for the end of a job. Returns: its state and its exit status, as ``FAILED 1:0``."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            shown = self.run("scontrol", "--oneliner", "show", "job", job, cwd=cwd).stdout
            fields = dict(field.partition("=")[::2] for field in shown.split())
            if fields["JobState"] not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING"):
                return f"{fields['JobState']} {fields['ExitCode']}"
            time.sleep(0.3)
        raise AssertionError(f"job {job} did not end in {timeout_s} s")


def missing() -> str:
    """Why there can be no cluster here; empty if there can be one."""
    lacking = [program for program in PROGRAMS if shutil.which(program, path=_path()) is None]
    if lacking:
        return f"{', '.join(lacking)}: not found; Debian has them in slurm-wlm and munge"
    host = _host()
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return f"the name of this machine, {host}, has no address"
    return ""


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Start the daemons of a cluster, which keeps its files in ``folder``, and end them and its jobs at the end."""
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key, socket_file, conf = folder / "munge.key", folder / "munge.socket", folder / "slurm.conf"
    for number in (0, 1):
        (folder / f"gpu{number}").touch()
    (folder / "gres.conf").write_text(f"AutoDetect=off\nName=gpu File={folder}/gpu[0-1]\n")
    key.write_bytes(bytes(range(256)) * 4)
    key.chmod(0o600)
    host, user = _host(), Path(folder).owner()
    conf.write_text(CONFIGURATION.format(folder=folder, host=host, user=user, ports=free_ports(3)))
    env = {**environment(), "PATH": _path(), "SLURM_CONF": str(conf)}
    running = Cluster(env)
    munge = [f"--{name}-file={folder}/munge.{name}" for name in ("pid", "log", "seed")]
    commands = [["munged", "--foreground", "--force", f"--key-file={key}", f"--socket={socket_file}", *munge]]
    commands += [["slurmctld", "-D", "-c"], *(["slurmd", "-D", "-N", node] for node in (host, f"{host}-second"))]
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        for number, command in enumerate(commands):
            with (folder / f"log.{number}").open("wb") as log:
                daemons.append(subprocess.Popen(command, env=env, stdout=log, stderr=log, preexec_fn=end_with_launcher))
            if number == 0:
                _wait(socket_file.exists, folder)
        _wait(lambda: _num_idle(running, folder) == 2, folder)
        yield running
    finally:
        if len(daemons) == len(commands):
            with suppress(subprocess.TimeoutExpired):
                running.run("scancel", "--signal=KILL", "--full", "--user", user, cwd=folder)
                _wait(lambda: _num_idle(running, folder) == 2, folder)
        for daemon in reversed(daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def _num_idle(running: Cluster, cwd: Path) -> int:
    shown = running.run("sinfo", "--noheader", "--Node", "--format=%T", cwd=cwd)
    return shown.stdout.split().count("idle")


def _wait(condition: Callable[[], bool], folder: Path, timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        logs = "\n".join(path.read_text() for path in sorted(folder.glob("log.*")))
        assert time.monotonic() < deadline, f"the cluster does not start:\n{logs}"
        time.sleep(0.2)


def _host() -> str:
    return socket.gethostname().partition(".")[0]


def _path() -> str:
    """The search path with the folders of daemons, which not every user has."""
    return f"{environment().get('PATH', '')}:/usr/sbin:/sbin"
