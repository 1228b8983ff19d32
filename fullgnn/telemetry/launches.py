"""The launches of a GPU in an epoch, from torch's profiler: time by kernel, and the gaps in which it is idle."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch.autograd import DeviceType

from fullgnn.telemetry.timing import synchronize

_NAME = 90  # characters of a kernel's
_MOST_ROWS = 40


class Launch(NamedTuple):
    """One kernel, copy or fill on the device."""

    name: str
    begin_us: float
    end_us: float


def profiled(step: Callable[[], Callable[[], float]], device: torch.device, epochs: int) -> list[Launch]:
    """What ``epochs`` epochs launched, without waiting between them; on a CPU, the operators.

    Args:
        step: launches one epoch; what it returns waits for the loss, and reads it.
    """
    kind = "CUDA" if device.type == "cuda" else "CPU"
    step()()
    synchronize(device)
    with torch.profiler.profile(activities=[getattr(torch.profiler.ProfilerActivity, kind)]) as profiler:
        reads = [step() for _ in range(epochs)]
        synchronize(device)
    for read in reads:
        read()
    return [
        Launch(event.name[:_NAME], event.time_range.start, event.time_range.end)
        for event in profiler.events() or ()
        if event.device_type == getattr(DeviceType, kind) and not getattr(event, "is_user_annotation", False)
    ]


def launch_table(launches: Iterable[Launch], epochs: int) -> dict[str, Any]:
    """Time and number by kernel, and the gaps by the kernels before and after, each for one epoch.

    A gap is a stretch between two launches in which none was running. ``busy_ms`` and ``idle_ms`` add up to the time
    from the first launch to the end of the last.
    """
    ordered = sorted(launches, key=attrgetter("begin_us", "end_us"))
    kernels: dict[str, list[float]] = defaultdict(list)
    gaps: dict[tuple[str, str], list[float]] = defaultdict(list)
    latest = ordered[0] if ordered else Launch("", 0.0, 0.0)  # the one that ends last so far
    for launch in ordered:
        kernels[launch.name].append(launch.end_us - launch.begin_us)
        if launch.begin_us > latest.end_us:
            gaps[latest.name, launch.name].append(launch.begin_us - latest.end_us)
        latest = max(latest, launch, key=attrgetter("end_us"))
    idle_us = sum(map(sum, gaps.values()))
    whole_us = latest.end_us - ordered[0].begin_us if ordered else 0.0

    def of_one_epoch(times: Mapping[Any, list[float]], count: str) -> list[tuple[Any, dict[str, float]]]:
        longest = sorted(times.items(), key=lambda item: -sum(item[1]))[:_MOST_ROWS]
        return [(key, {count: len(us) / epochs, "total_ms": sum(us) / epochs / 1e3}) for key, us in longest]

    return {
        "epochs": epochs,
        "busy_ms": (whole_us - idle_us) / epochs / 1e3,
        "idle_ms": idle_us / epochs / 1e3,
        "kernels": [{"kernel": name} | times for name, times in of_one_epoch(kernels, "launches")],
        "gaps": [{"after": a, "before": b} | times for (a, b), times in of_one_epoch(gaps, "gaps")],
    }
