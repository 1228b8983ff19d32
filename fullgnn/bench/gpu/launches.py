"""What a GPU does in an epoch, by kernel, and the gaps in which it does nothing: what a profiler saw, as a table."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import DeviceType

from fullgnn.bench.gpu.timing import synchronize
from fullgnn.bench.gpu.training import Step

EPOCHS = 5
_NAME = 90  # characters of a kernel's
_MOST_ROWS = 40


@dataclass(frozen=True)
class Launch:
    """One kernel, copy or fill on the device."""

    name: str
    begin_us: float
    end_us: float


def profiled(step: Step, device: torch.device, epochs: int = EPOCHS) -> list[Launch]:
    """What ``epochs`` epochs launched, without waiting between them; on a CPU, the operators."""
    cuda = device.type == "cuda"
    activity = torch.profiler.ProfilerActivity.CUDA if cuda else torch.profiler.ProfilerActivity.CPU
    step()()
    synchronize(device)
    with torch.profiler.profile(activities=[activity]) as profiler:
        reads = [step() for _ in range(epochs)]
        synchronize(device)
    for read in reads:
        read()
    where = DeviceType.CUDA if cuda else DeviceType.CPU
    return [
        Launch(event.name, event.time_range.start, event.time_range.end)
        for event in profiler.events() or ()
        if event.device_type == where and not getattr(event, "is_user_annotation", False)
    ]


def launch_table(launches: Iterable[Launch], epochs: int) -> dict[str, Any]:
    """Time and number by kernel, and the gaps by the kernels before and after, each for one epoch.

    A gap is a stretch between two launches in which none was running. ``busy_ms`` and ``idle_ms`` add up to the time
    from the first launch to the end of the last.
    """
    ordered = sorted(launches, key=lambda one: (one.begin_us, one.end_us))
    kernels: dict[str, list[float]] = defaultdict(list)
    gaps: dict[tuple[str, str], list[float]] = defaultdict(list)
    busy_us, end_us, last = 0.0, None, ""
    for one in ordered:
        kernels[one.name[:_NAME]].append(one.end_us - one.begin_us)
        if end_us is not None and one.begin_us > end_us:
            gaps[last, one.name[:_NAME]].append(one.begin_us - end_us)
        if end_us is None or one.end_us > end_us:
            busy_us += one.end_us - max(one.begin_us, one.begin_us if end_us is None else end_us)
            end_us, last = one.end_us, one.name[:_NAME]
    idle_us = sum(map(sum, gaps.values()))
    return {
        "epochs": epochs,
        "busy_ms": busy_us / epochs / 1e3,
        "idle_ms": idle_us / epochs / 1e3,
        "kernels": [
            {"kernel": name, "launches": len(times) / epochs, "total_ms": sum(times) / epochs / 1e3}
            for name, times in sorted(kernels.items(), key=lambda item: -sum(item[1]))[:_MOST_ROWS]
        ],
        "gaps": [
            {"after": pair[0], "before": pair[1], "gaps": len(times) / epochs, "total_ms": sum(times) / epochs / 1e3}
            for pair, times in sorted(gaps.items(), key=lambda item: -sum(item[1]))[:_MOST_ROWS]
        ],
    }
