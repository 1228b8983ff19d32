"""Epochs timed by preset: ten at a time between two CUDA events, at several rates of dropout."""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from fullgnn.bench.gpu.others import naive, pyg
from fullgnn.bench.gpu.ours import LATER, OURS, alone, ours, preset_config
from fullgnn.bench.gpu.timing import synchronize
from fullgnn.bench.gpu.training import Start, Step, Training, peak_memory, start_memory
from fullgnn.engine.cuda_graph import EAGER_EPOCHS
from fullgnn.kernels.support.trials import settle

PYG = {"PyG GCNConv, torch CSR": "csr", "PyG GCNConv, EdgeIndex": "edge_index"}
PRESETS = ("naive", *OURS, *PYG)

DROPOUTS = (0.0, 0.5)
"""Rates of dropout of the hidden layer."""

EPOCHS_AT_ONCE = 10
"""Between two events."""

WARM_UP = EAGER_EPOCHS + 3  # the capture of a step and the first replays are in it
_LEAST_ROUNDS, _MOST_ROUNDS = 3, 12


def run_preset(
    preset: str,
    training: Training,
    seconds: float,
    dropouts: tuple[float, ...] = DROPOUTS,
    then: Callable[[float, Step], None] = lambda dropout, step: None,
) -> list[dict[str, Any]]:
    """Set ``preset`` up, train some epochs at each rate and say what they took: entries of the record.

    Memory counts what a process would hold that runs this preset alone, without what only the others need.

    Args:
        then: called with each rate and its training, warm, after it was timed.
    """
    device = training.device
    before = start_memory(device)
    shared = 0 if preset in (*OURS, *LATER) else training.nodes.features.nbytes + training.csr.indices.nbytes
    begin, found = time.perf_counter(), []
    with _made(preset, training) as start:
        for dropout in dropouts:
            step, settings = start(dropout)
            synchronize(device)
            setup_s = time.perf_counter() - begin
            setup_bytes = peak_memory(device)
            start_memory(device)
            times, losses = time_epochs(step, device, seconds)
            peak_bytes = peak_memory(device)
            found.append(
                {
                    "preset": preset,
                    "dropout": dropout,
                    "median_ms": statistics.median(times),
                    "least_ms": min(times),
                    "most_ms": max(times),
                    "rounds": len(times),
                    "setup_s": setup_s,  # of the second rate, the model alone
                    "setup_peak_bytes": setup_bytes and setup_bytes - before + shared,
                    "peak_bytes": peak_bytes and peak_bytes - before + shared,
                    "losses": losses[: WARM_UP + 5],
                    "settings": settings(),
                }
            )
            then(dropout, step)
            del step, settings
            start_memory(device)
            begin = time.perf_counter()
    return found


def time_epochs(step: Step, device: torch.device, seconds: float) -> tuple[list[float], list[float]]:
    """Milliseconds of an epoch, a number for each round of several, after the warm-up; and the losses of all epochs.

    On a CPU, where nothing but toys is run, one round of two epochs is all.
    """
    losses, times = [step()()], list[float]()
    settle()  # every width has been multiplied
    losses += [step()() for _ in range(WARM_UP - 1)]
    begin = time.perf_counter()
    while len(times) < _LEAST_ROUNDS or (len(times) < _MOST_ROUNDS and time.perf_counter() - begin < seconds):
        if device.type == "cpu":
            start = time.perf_counter()
            losses += [step()() for _ in range(2)]
            return [(time.perf_counter() - start) * 1e3 / 2], losses
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        synchronize(device)
        first.record()
        reads = [step() for _ in range(EPOCHS_AT_ONCE)]
        last.record()
        synchronize(device)
        times.append(first.elapsed_time(last) / EPOCHS_AT_ONCE)
        losses += [read() for read in reads]
    return times, losses


def loss_error(losses: list[float], expected: list[float]) -> float:
    """Largest relative difference of two curves."""
    return max(abs(a - b) / abs(b) for a, b in zip(losses, expected))


@contextmanager
def _made(preset: str, training: Training) -> Iterator[Start]:
    if preset == "naive":
        yield naive(training)
    elif preset in PYG:
        yield pyg(training, PYG[preset])
    else:
        cfg = preset_config(preset, training)
        with alone(cfg.runtime) as world:
            yield ours(cfg, training, world)
