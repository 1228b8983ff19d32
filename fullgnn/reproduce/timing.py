"""Times of steps in this process, by the benchmark's rules: interleaved rounds, warm-up, medians."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from fullgnn.bench.harness import Measurement, Method, measure, timed
from fullgnn.distributed import World

_TIMEOUT_S = 600.0


@contextmanager
def world_of_one(device: torch.device) -> Iterator[World]:
    """A job of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield World(0, 1, 1, device, "gloo", _TIMEOUT_S)
    finally:
        dist.destroy_process_group()


def interleaved(
    steps: Mapping[str, Callable[[], Any]], device: torch.device, rounds: int, warmup: int = 1, budget_s: float = 60
) -> dict[str, Measurement]:
    """The times of each step, all of them once a round.

    Args:
        budget_s: a step that took longer in all stops after the benchmark's least number of rounds.
    """
    threads = torch.get_num_threads()
    methods = [Method(name, "ours", timed(step, device), 1, threads) for name, step in steps.items()]
    with world_of_one(device) as world:
        measurements, _ = measure(methods, world, rounds, warmup, budget_s)
    return {one.method: one for one in measurements}
