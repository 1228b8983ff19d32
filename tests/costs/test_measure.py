"""Measuring this machine, with tiny sizes: the results are possible, equal on every rank, and cached. A small graph
asks for a short measurement, and a large one for all of it."""

import math
import time
from dataclasses import fields, replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from fullgnn.config import RuntimeConfig
from fullgnn.costs import hardware, measure
from fullgnn.costs.hardware import SMALL, WHOLE, Hardware, Link, cached_hardware, keep_hardware, load_hardware
from fullgnn.costs.measure import MOST_NNZ, Sizes, line, measured_hardware, needed_part, random_pattern, sizes_of
from fullgnn.costs.statistics import GraphStatistics
from fullgnn.distributed import Axis, World, can_share_memory, launch_workers
from fullgnn.errors import FullGNNError, UnsupportedError
from fullgnn.telemetry import machine
from fullgnn.telemetry.machine import peak_process_bytes
from fullgnn.telemetry.meter import Meter
from fullgnn.telemetry.timing import JobClock
from tests.cases import config
from tests.commands import OWN, run_command

pytestmark = pytest.mark.sample(2)  # its tests take seconds, or compile kernels

TINY = Sizes(tables=(1 << 12, 1 << 16), num_edges=5000, num_rows=300, messages=(1 << 12, 1 << 16), round_s=1e-3)
ALONE = World(rank=0, size=1, local_size=1, device=torch.device("cpu"), backend="gloo", timeout_s=60)


def runtime(tmp_path: Path, *overrides: str) -> RuntimeConfig:
    return config("runtime.device=cpu", "runtime.threads=1", f"runtime.cache_dir={tmp_path}", *overrides).runtime


def is_possible(profile: Hardware) -> bool:
    """Whether all numbers are finite, the latencies not negative and all other numbers positive."""
    numbers = [getattr(profile, field.name) for field in fields(profile)]
    numbers = [number for number in numbers if isinstance(number, (int, float))]
    links = profile.links.values()
    gathers = [*profile.gather.values(), *profile.edge_gather.values()]
    rates = [*numbers, *gathers, *(link.bytes_per_s for link in links)]
    return (
        len(numbers) == 7
        and all(0 < rate < math.inf for rate in rates)
        and all(0 <= link.latency_s < math.inf for link in links)
    )


def test_one_rank_measures_itself_without_a_job() -> None:
    torch.set_num_threads(1)
    profile = measure.measure(ALONE, TINY)
    assert is_possible(profile)
    assert (profile.name, profile.device, profile.ranks_per_node, profile.network) == ("auto", "cpu", 1, None)
    assert profile.source.startswith("measured on ") and "1 ranks x 1 threads" in profile.source
    assert set(profile.gather) == set(profile.edge_gather) == set(TINY.tables)
    assert profile.links == {}


def test_tables_that_are_large_for_the_memory_are_left_out(monkeypatch) -> None:
    monkeypatch.setattr(machine, "memory_bytes", lambda device: 16 * TINY.tables[0])
    assert set(measure.measure(ALONE, TINY).gather) == {TINY.tables[0]}


def test_a_job_on_several_machines_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="hardware=auto measures one machine, and this job has more"):
        measure.measure(replace(ALONE, size=2))


def measured(world: World) -> tuple[Hardware, bool]:
    return measure.measure(world, TINY), can_share_memory(world)


@pytest.mark.sample(4)
def test_all_ranks_measure_the_same(ranks) -> None:
    (first, shares), *others = ranks(2)(measured)
    assert is_possible(first)
    assert first.ranks_per_node == 2
    assert set(first.links) == {"exchange", "broadcast", "all_reduce"} | ({"shared"} if shares else set())
    assert all(other == (first, shares) for other in others)


def kept(world: World, runtime: RuntimeConfig) -> tuple[int, Hardware, Hardware, Hardware | None]:
    """The number of measurements, the results of two calls, and the profile that is cached after them."""
    original = measure.measure
    with mock.patch.object(measure, "measure", side_effect=lambda world, sizes: original(world, TINY)) as measured:
        first, second = (measured_hardware(world, runtime) for _ in range(2))
    torch.distributed.barrier()  # after it, rank 0 has written the profile
    return measured.call_count, first, second, cached_hardware(runtime, world.size)


@pytest.mark.sample(3)
def test_ranks_of_a_job_measure_once(ranks, tmp_path: Path) -> None:
    results = ranks(2)(kept, runtime(tmp_path))
    assert results[0][0] == 1
    assert all(result == (1, *[results[0][1]] * 3) for result in results)


def peaks(world: World, runtime: RuntimeConfig) -> tuple[int, int]:
    """The peak memory of the process before and after a measurement that takes 400 MB of it."""

    def measured(world: World, sizes: Sizes) -> Hardware:
        torch.ones(100_000_000)
        return original(world, TINY)

    original, before = measure.measure, peak_process_bytes()
    with mock.patch.object(measure, "measure", measured):
        measured_hardware(world, runtime)
    return before, peak_process_bytes()


def test_measuring_is_not_in_the_peak_of_the_process(ranks, tmp_path: Path) -> None:
    for before, after in ranks(2)(peaks, runtime(tmp_path)):
        assert after < before + 200_000_000


def timed(world: World) -> float:
    return JobClock(world.device, world.size, 0.02).seconds(lambda: time.sleep(0.002 + 0.01 * world.rank))


def test_the_slowest_rank_counts(ranks) -> None:
    for seconds in ranks(2)(timed):
        assert 0.012 <= seconds < 0.5


@pytest.mark.parametrize(("spread", "cores", "busy"), [(1.2, 64, False), (1.3, 64, True), (1.3, 0, False)])
def test_a_busy_machine_is_told_by_its_times(monkeypatch, caplog, spread: float, cores: int, busy: bool) -> None:
    """Where ranks take turns on too few cores, each work takes longer on any machine."""
    monkeypatch.setattr(measure, "num_cores", lambda: cores)
    times = iter([9.0, 1.0, 1.0, *[spread] * 8])  # warm-up, repeats, rounds
    monkeypatch.setattr(JobClock, "_round_ms", lambda self, work, repeats: next(times, 1.0))
    profile = measure.measure(ALONE, TINY)
    assert profile.source.endswith(", while it was busy") == busy
    assert ("one work took 1.3 times as long as it can" in caplog.text) == busy


def counted(world: World) -> dict[str, tuple[float, float]]:
    """Bytes that a rank receives in each transfer: the meter's mean over as many rounds as there are ranks, and the
    bytes that the measurement assumes."""
    meter = Meter(world.device)
    axis = Axis(world.group, meter)
    received = {}
    for name, (move, num_bytes) in measure._moves(axis, torch.zeros(10 * world.size, measure.WIDTH)).items():
        for _ in range(world.size):
            move()
        received[name] = meter.take().bytes_received[name] / world.size, num_bytes
    return received


@pytest.mark.parametrize("world_size", [2, 3])
def test_bytes_are_counted_as_the_meter_counts_them(ranks, world_size: int) -> None:
    for received in ranks(world_size)(counted):
        for name, (metered, taken) in received.items():
            received = (world_size - 1) / world_size if name == "broadcast" else 1  # the source receives nothing
            assert metered == pytest.approx(received * taken), name


def test_a_line_has_the_latency_and_rate_that_two_times_have() -> None:
    link = Link(3e-5, 2e9)
    fitted = line((1000, link.time_s(1000)), (8e6, link.time_s(8e6)))
    assert (fitted.latency_s, fitted.bytes_per_s) == (pytest.approx(3e-5), pytest.approx(2e9))
    assert line((1000, 1e-7), (2000, 4e-7)) == Link(0, 2000 / 4e-7)  # the line begins below zero
    assert line((1000, 2e-5), (2000, 1e-5)) == Link(0, 2000 / 1e-5)  # more bytes in less time


def test_a_random_pattern_is_uniform_and_sorted() -> None:
    num_rows, num_cols, nnz = 50, 40, 20_000
    adj = random_pattern(num_rows, num_cols, nnz, seed=1, device=torch.device("cpu"))
    indptr, columns = adj.indptr.numpy(), adj.indices.numpy()
    assert (adj.indptr.dtype, adj.indices.dtype, adj.values) == (torch.int32, torch.int32, None)
    assert (indptr[0], indptr[-1], adj.nnz) == (0, nnz, nnz)
    rows = np.repeat(np.arange(num_rows), np.diff(indptr))
    assert (np.diff(columns)[np.diff(rows) == 0] >= 0).all()
    assert chisquare(np.bincount(rows * num_cols + columns, minlength=num_rows * num_cols)).pvalue > 1e-3


@pytest.mark.parametrize(("local_size", "num_caches", "expected_mib"), [(1, 2, 32), (2, 2, 32), (4, 2, 16), (2, 1, 16)])
def test_ranks_share_the_last_level_caches(monkeypatch, local_size: int, num_caches: int, expected_mib: int) -> None:
    caches = {f"{2 * cache}-{2 * cache + 1}": 32 << 20 for cache in range(num_caches)}
    monkeypatch.setattr(machine, "last_level_caches", lambda: caches)
    world = replace(ALONE, size=local_size, local_size=local_size)
    assert measure._cache_bytes(world) == expected_mib << 20


def test_a_machine_that_hides_its_caches_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(machine, "last_level_caches", dict)
    with pytest.raises(UnsupportedError, match="hardware=auto finds no caches of this CPU"):
        measure._cache_bytes(ALONE)


TINY_RANK = """
from fullgnn.distributed.command import run_command
from fullgnn.costs import measure
original = measure.measure
measure.measure = lambda world, sizes: original(world, measure.{tiny!r})
run_command(measure.run, str)
"""


def launch_tiny(arguments: list[str], nproc: int, runtime: RuntimeConfig) -> None:
    assert arguments[:2] == ["-m", "fullgnn.costs.measure"]
    launch_workers(["-c", TINY_RANK.format(tiny=TINY), *arguments[2:]], nproc, runtime)


@pytest.mark.sample(6)
def test_auto_starts_ranks_that_measure(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(hardware, "launch_workers", launch_tiny)
    profile = load_hardware("auto", runtime(tmp_path), 2)
    assert is_possible(profile)
    assert profile.ranks_per_node == 2 and set(profile.gather) == set(TINY.tables)
    assert cached_hardware(runtime(tmp_path), 2) == profile


@pytest.mark.sample(4)
def test_a_mistake_that_the_ranks_find_is_one_error(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(hardware, "launch_workers", launch_tiny)
    with pytest.raises(FullGNNError, match="runtime.backend=nccl needs GPUs: use runtime.backend=gloo"):
        load_hardware("auto", runtime(tmp_path, "runtime.backend=nccl"), 1)
    assert cached_hardware(runtime(tmp_path, "runtime.backend=nccl"), 1) is None


GRAPH = GraphStatistics(num_nodes=2000, nnz=30_000, num_features=64, num_classes=10, num_train=100)
LIMIT_S = 3.0
"""Seconds in which ``scheme=auto`` decides on a small graph."""


@pytest.mark.parametrize(
    ("graph", "overrides", "part"),
    [
        (GRAPH, [], SMALL),
        (GRAPH, ["model=gat"], "small-edges"),
        (GRAPH, ["model=sage", "model.aggregation=max"], "small-edges"),
        (GRAPH, ["model=lightgcn", "task=link_ranking"], "small-draws"),
        (GRAPH, ["model.hidden_channels=2097", "runtime.dtype=float32"], SMALL),
        (GRAPH, ["model.hidden_channels=2098", "runtime.dtype=float32"], WHOLE),
        (GRAPH, ["model.hidden_channels=2097", "runtime.dtype=float64"], WHOLE),
        (replace(GRAPH, nnz=MOST_NNZ), [], SMALL),
        (replace(GRAPH, nnz=MOST_NNZ + 1), [], WHOLE),
        (replace(GRAPH, num_nodes=10**7), [], WHOLE),
    ],
)
def test_the_part_follows_from_graph_and_run(graph: GraphStatistics, overrides: list[str], part: str) -> None:
    assert needed_part(config(*overrides), graph) == part


def test_a_dataset_tells_its_part() -> None:
    assert needed_part(config("dataset=digits")) == SMALL
    assert needed_part(config("dataset=digits", "model=gat")) == "small-edges"


def test_a_part_is_measured_with_the_least_table_of_the_whole() -> None:
    """``Hardware.near_bytes`` is the same, so that a kept plan serves both."""
    whole, part = Sizes(), sizes_of(SMALL)
    assert sizes_of(WHOLE) == whole and min(part.tables) == min(whole.tables) and set(part.tables) < set(whole.tables)
    assert not part.edges and not part.draws and sizes_of("small-edges").edges and sizes_of("small-draws").draws


def test_a_small_graph_takes_a_short_measurement() -> None:
    torch.set_num_threads(1)
    taken = []
    while not taken or (min(taken) > LIMIT_S and len(taken) < 3):  # others may work on this machine
        begin = time.perf_counter()
        profile = measure.measure(ALONE, sizes_of(SMALL))
        taken.append(time.perf_counter() - begin)
    assert min(taken) <= LIMIT_S
    assert set(profile.gather) == set(sizes_of(SMALL).tables) and not profile.edge_gather and profile.draw_s == 1e-7


HARDWARE = Hardware("auto", "a test", "cpu", 2, 10**9, 10**6, 1e10, 1e10, 1e-6, {1 << 19: 1e10}, {}, Link(0.0, 1e9))


def test_a_profile_of_the_whole_machine_serves_every_graph(tmp_path: Path) -> None:
    here = runtime(tmp_path)
    assert hardware.kept_or_needed(here, 2, lambda: SMALL) == (None, SMALL)
    keep_hardware(HARDWARE, here, 2, SMALL)
    assert hardware.cache_path(here, 2, SMALL).name.endswith("-small.yaml")
    assert hardware.kept_or_needed(here, 2, lambda: SMALL) == (HARDWARE, SMALL)
    assert hardware.kept_or_needed(here, 2, lambda: WHOLE) == (None, WHOLE)
    assert hardware.kept_or_needed(here, 2, lambda: "small-edges") == (None, "small-edges")
    keep_hardware(replace(HARDWARE, source="all"), here, 2)

    def not_asked() -> str:
        raise AssertionError("the graph is loaded")

    assert hardware.kept_or_needed(here, 2, not_asked) == (replace(HARDWARE, source="all"), WHOLE)


@pytest.mark.sample(4)
def test_auto_measures_little_for_a_small_graph_and_keeps_it(tmp_path: Path) -> None:
    run = ["dataset=karate", "scheme=auto", "runtime.nproc=2", "runtime.device=cpu", "train.epochs=1"]
    for number in (1, 2):
        done = run_command(OWN, *run, "runtime.cache_dir=cache", f"run_dir=run{number}", cwd=tmp_path)
        assert done.status == 0 and "predicted" in done.output, done.output
        assert ("measuring what a small graph needs of this machine, 1 to 3 s" in done.output) == (number == 1)
        assert "10 to 20 s" not in done.output
    (kept,) = (tmp_path / "cache" / "hardware").glob("*.yaml")
    assert kept.name.endswith("-2x1-small.yaml")
