"""A profiler's launches are summed by kernel and by gap."""

import pytest
import torch

from fullgnn.telemetry.launches import Launch, launch_table, profiled


def test_time_by_kernel_and_by_gap():
    """Two equal epochs (us): a from 0 to 10, b to 30 with c inside, a gap of 20, d from 50 to 100; then a gap of 50."""
    once = [("a", 0, 10), ("b", 10, 30), ("c", 12, 20), ("d", 50, 100)]
    launches = [Launch(name, begin + 150 * turn, end + 150 * turn) for turn in (1, 0) for name, begin, end in once]
    table = launch_table(launches, epochs=2)
    times = {row["kernel"]: (row["launches"], row["total_ms"]) for row in table["kernels"]}
    assert times == {"a": (1, 0.01), "b": (1, 0.02), "c": (1, pytest.approx(0.008)), "d": (1, 0.05)}
    assert next(row["kernel"] for row in table["kernels"]) == "d"
    gaps = {(row["after"], row["before"]): (row["gaps"], row["total_ms"]) for row in table["gaps"]}
    assert gaps == {("b", "d"): (1, 0.02), ("d", "a"): (0.5, 0.025)}
    assert table["busy_ms"] == pytest.approx(0.08) and table["idle_ms"] == pytest.approx(0.045)


def test_an_epoch_is_profiled():
    x = torch.ones(8)

    def step():
        x.add_(1)
        return lambda: 0.0

    events = profiled(step, torch.device("cpu"), epochs=3)
    assert [event.name for event in events].count("aten::add_") == 3
    assert all(event.end_us >= event.begin_us for event in events)
    assert launch_table([], 1)["busy_ms"] == 0
