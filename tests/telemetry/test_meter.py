"""The meter counts the times and bytes of an interval."""

import time

import pytest
import torch

from fullgnn.telemetry.meter import Cost, Meter


def test_phases_are_parts_of_an_interval_and_take_starts_again() -> None:
    meter = Meter(torch.device("cpu"))
    with meter.interval("epoch"):
        with meter.phase("spmm"):
            time.sleep(0.02)
        time.sleep(0.01)
    meter.received("broadcast", 10)
    meter.received("broadcast", 5)
    cost = meter.take()
    assert cost.time_ms["epoch"] >= cost.time_ms["spmm"] + 9 >= 28
    assert cost.bytes_received == {"broadcast": 15}
    assert meter.take() == Cost()


def test_a_phase_within_another_pauses_it() -> None:
    """Whatever the nesting, and also where the host is timed, a moment counts for one phase."""
    meter = Meter(torch.device("cpu"))
    span = meter.start("flight")
    with meter.interval("epoch"), meter.phase("other"):
        time.sleep(0.01)
        with meter.phase("comm"):
            time.sleep(0.03)
            with meter.clock("load"):
                time.sleep(0.02)
            with pytest.raises(ZeroDivisionError), meter.phase("other"):
                raise ZeroDivisionError
        with meter.phase("comm"), meter.phase("comm"):
            time.sleep(0.03)
    span.stop()
    times = meter.take().time_ms
    assert times["other"] < 30 and 60 <= times["comm"] and 20 <= times["load"]
    assert times["other"] + times["comm"] + times["load"] <= times["epoch"] <= times["flight"]


def test_a_phase_that_raises_is_not_lost_on_the_next() -> None:
    meter = Meter(torch.device("cpu"))
    with pytest.raises(ZeroDivisionError), meter.phase("spmm"):
        raise ZeroDivisionError
    with meter.phase("spmm"):
        pass
    assert meter.take().time_ms["spmm"] < 1000


def test_untimed_counts_apart_and_add_counts_again() -> None:
    meter = Meter(torch.device("cpu"))
    meter.received("exchange", 1)
    with meter.untimed() as apart:
        with meter.phase("spmm"):
            pass
        meter.received("exchange", 10)
        meter.count("spmm_columns", 3)
    assert apart == Cost({}, {"exchange": 10}, {"spmm_columns": 3})
    assert meter.take() == Cost({}, {"exchange": 1}, {})
    meter.add(apart)
    meter.add(apart)
    assert meter.take() == Cost({}, {"exchange": 20}, {"spmm_columns": 6})
    with pytest.raises(ZeroDivisionError), meter.untimed():
        raise ZeroDivisionError
    with meter.phase("spmm"):
        pass
    assert set(meter.take().time_ms) == {"spmm"}


def test_what_was_cut_is_read_later_and_is_not_touched_by_what_follows() -> None:
    meter = Meter(torch.device("cpu"))
    meter.received("exchange", 1)
    with meter.interval("epoch"):
        pass
    spent = meter.lap()
    meter.received("exchange", 2)
    with meter.phase("spmm"):
        pass
    first, second = spent.read(), meter.take()
    assert set(first.time_ms) == {"epoch"} and first.bytes_received == {"exchange": 1}
    assert set(second.time_ms) == {"spmm"} and second.bytes_received == {"exchange": 2}


@pytest.mark.gpu
def test_gpu_phases_are_timed_with_events() -> None:
    device = torch.device("cuda")
    meter = Meter(device)
    x = torch.randn(4096, 4096, device=device)
    with meter.phase("dense"):
        x @ x
    assert meter.take().time_ms["dense"] > 0
    with meter.interval("epoch"), meter.phase("other"), meter.phase("comm"):
        x @ x
    times = meter.take().time_ms
    assert min(times.values()) >= 0 and times["other"] + times["comm"] <= times["epoch"] * 1.01 < 3 * times["comm"]
