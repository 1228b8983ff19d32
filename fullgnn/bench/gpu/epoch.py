"""The epochs of one graph, timed by preset at two rates of dropout, and what the GPU does in one of ours."""

import gc
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

import torch

from fullgnn.bench.gpu import training
from fullgnn.bench.gpu.made_graph import MadeGraph
from fullgnn.bench.gpu.training import LATER, OURS, PEERS, Step
from fullgnn.bench.gpu.worker import Report, Task
from fullgnn.bench.problem import Problem
from fullgnn.engine.cuda_graph import EAGER_EPOCHS
from fullgnn.kernels.support import gpu
from fullgnn.telemetry.launches import launch_table, profiled
from fullgnn.telemetry.timing import device_ms, synchronize

DROPOUTS = (0.0, 0.5)
"""Rates of dropout of the hidden layer. The presets of ``LATER`` run at the first alone."""

EPOCHS_AT_ONCE = 10
"""Epochs between two CUDA events."""

WARM_UP = EAGER_EPOCHS + 3  # the capture of a step and the first replays are in it
_LEAST_ROUNDS, _MOST_ROUNDS, _ROUNDS_S = 3, 12, 1.5
_PROFILED_EPOCHS = 5
_HOST_S_PER_ENTRY = len(OURS) * 3e-8  # each of our presets shards the adjacency on the host, for one process


def run(task: Task, report: Report) -> None:
    """Arguments of the task: those of ``MadeGraph``, and ``presets``: ``ours`` or ``peers``."""
    made = MadeGraph(task, report, host_s_per_entry=_HOST_S_PER_ENTRY)
    found = made.make()
    if found is None:
        return
    graph, csr, perm = found
    problem = report.item("features", partial(training.make_problem, graph, csr, perm, made.shape))
    del graph, found
    if problem is None:
        return
    gpu.INTERPRETED = False  # for a toy ``auto`` takes a CPU's kernel: there is no GPU to time the others on
    for preset in OURS if task.arguments["presets"] == "ours" else PEERS:
        if preset.startswith("PyG") and find_spec("torch_geometric") is None:
            report.missing(f"epoch {preset}", "torch_geometric is not installed")
            continue
        once = partial(run_preset, preset, problem, made)
        report.item(f"epoch {preset}", once, limit_s=150, predicted_s=0.0 if task.toy else 6.0)
    gpu.INTERPRETED = task.toy


def run_preset(preset: str, problem: Problem, made: MadeGraph) -> None:
    """Set ``preset`` up, train some epochs at each rate of dropout, and put what they took into the record.

    The bytes are what a process that runs this preset alone would hold.
    """
    device = problem.features.device
    before = start_memory(device)
    # Ours hold copies of their own; the peers read these tensors, which are there before they start.
    shared = 0 if preset in OURS else problem.features.nbytes + problem.indices.nbytes

    def own_peak() -> int | None:
        peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
        return peak and peak - before + shared

    begin = time.perf_counter()
    with training.started(preset, problem, str(made.scratch / "kernels")) as start:
        for dropout in DROPOUTS if preset not in LATER else DROPOUTS[:1]:
            step, settings = start(dropout)
            synchronize(device)
            setup_s, setup_peak_bytes = time.perf_counter() - begin, own_peak()
            start_memory(device)
            times, losses = time_epochs(step, device, _ROUNDS_S)
            entry = {
                "preset": preset,
                "dropout": dropout,
                "median_ms": statistics.median(times),
                "least_ms": min(times),
                "most_ms": max(times),
                "rounds": len(times),
                "setup_s": setup_s,
                "setup_peak_bytes": setup_peak_bytes,
                "peak_bytes": own_peak(),
                "losses": losses[: WARM_UP + 5],
                "settings": settings(),
                "loss_error": _loss_error(preset, dropout, losses[: WARM_UP + 5], made),
            }
            made.add("epoch", entry)
            if preset == "full":
                table = launch_table(profiled(step, device, _PROFILED_EPOCHS), _PROFILED_EPOCHS)
                made.add("launches", {"preset": preset, "dropout": dropout, **table})
            del step, settings
            start_memory(device)
            begin = time.perf_counter()


def time_epochs(step: Step, device: torch.device, seconds: float) -> tuple[list[float], list[float]]:
    """Train a warm-up, then rounds of several epochs, and return the milliseconds of an epoch, a number for each round,
    and the losses of all epochs.

    A CPU runs toys alone, so there is one round of two epochs on a CPU.
    """
    losses = [step()() for _ in range(WARM_UP)]
    at_once, least, most = (EPOCHS_AT_ONCE, _LEAST_ROUNDS, _MOST_ROUNDS) if device.type == "cuda" else (2, 1, 1)
    times: list[float] = []
    reads: list[Callable[[], float]] = []
    begin = time.perf_counter()
    while len(times) < least or (len(times) < most and time.perf_counter() - begin < seconds):
        synchronize(device)
        (took_ms,) = device_ms([lambda: reads.extend(step() for _ in range(at_once))], device)
        times.append(took_ms / at_once)
        losses += [read() for read in reads]
        reads.clear()
    return times, losses


def start_memory(device: torch.device) -> int:
    """Start to count the peak of memory, and return the bytes of the tensors that are there; 0 on a CPU, which does not
    count."""
    if device.type != "cuda":
        return 0
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)


def _loss_error(preset: str, dropout: float, losses: list[float], made: MadeGraph) -> float | None:
    """The largest relative difference from the losses of the first preset that ran on the graph, in whichever process.

    With dropout, ours are compared with each other alone: the peers draw other masks.
    """
    if dropout and preset in PEERS:
        return None
    kept = made.scratch / f"losses-{dropout}.json"
    if not kept.exists():
        kept.write_text(json.dumps(losses))
    return max(abs(a - b) / abs(b) for a, b in zip(losses, json.loads(kept.read_text())))
