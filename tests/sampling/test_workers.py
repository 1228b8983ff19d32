"""Batches that other processes make: equal to the bit, whatever the number of workers, slots and pieces."""

import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from fullgnn.errors import FullGNNError
from fullgnn.graph import Graph
from fullgnn.graph.labels import LabelFacts
from fullgnn.sampling.host_graph import HostGraph
from fullgnn.sampling.neighbors import ALL, NeighborSampler
from fullgnn.sampling.sample import BatchSampler
from fullgnn.sampling.samplers import NeighborBatches, hop_bytes, usual_inputs
from fullgnn.sampling.workers import Workers, pack, slot_type, unpack
from fullgnn.tasks import MultiClass
from tests.sampling.loaders import (
    NEEDS,
    NUM_FEATURES,
    NUM_NODES,
    batches_of,
    children,
    content,
    held,
    loader_of,
    make_workers,
    plain,
    same_batches,
)
from tests.sampling.neighbors import equal, random_graph
from tests.sampling.training import MODELS, case, run, same


def test_reads_are_counted_by_one_draw_of_every_node_where_that_is_less_work(graph, monkeypatch) -> None:
    called = []
    drawn_once = NeighborSampler.counts
    monkeypatch.setattr(NeighborSampler, "counts", lambda *args: called.append(1) or drawn_once(*args))
    num_calls = {}
    for size in (360, 50):
        host = HostGraph.of(graph, NEEDS, "float32")
        sampler = NeighborBatches(host, NeighborSampler(host.indptr, host.indices, [5, 3, 3], seed=3))
        batches = BatchSampler(host, sampler, MultiClass(LabelFacts(4, num_train=360)), size, 3)
        read = [batches.sample(2, number).inputs for number in range(batches.num_batches)]
        assert np.array_equal(batches.counts(2), np.bincount(np.concatenate(read), minlength=NUM_NODES))
        num_calls[size] = len(called)
    assert num_calls == {360: 0, 50: 1}
    monkeypatch.setattr("fullgnn.sampling.samplers.MOST_COUNTED_BYTES", 1000)
    assert batches.counts(2).sum() == sum(map(len, read)) and len(called) == 1


@pytest.mark.sample(5)
@pytest.mark.parametrize("num_workers", [1, 2, 3])
@pytest.mark.parametrize(
    ("num_slots", "num_rows", "num_bytes"), [(2, 900, 1 << 20), (1, 900, 1 << 20), (1, 40, 1 << 20), (3, 64, 100)]
)
def test_batches_are_those_of_one_process(
    graph: Graph, num_workers: int, num_slots: int, num_rows: int, num_bytes: int
) -> None:
    """Also with one slot, with features in many pieces, and with hops that fit into no slot."""
    batches = batches_of(graph, weighted=num_slots == 3)
    alone = loader_of(batches, None)
    with closing(loader_of(batches, make_workers(batches, num_workers, num_slots, num_rows, num_bytes))) as loader:
        assert loader.num_batches > 5
        next(loader.epoch(9))  # and no more of that epoch
        for epoch, first in ((1, 0), (2, 3), (3, 0), (4, 0)):
            wanted = [content(batch) for batch in alone.epoch(epoch, first)]
            contents = []
            for batch in loader.epoch(epoch, first):
                contents.append(content(batch))
                if len(contents) == len(wanted):
                    break  # nobody asks for one more
            assert same_batches(contents, wanted)


def test_hops_travel_through_a_slot_or_as_they_are(graph: Graph) -> None:
    batches = batches_of(graph, weighted=True)
    hops = batches.sample(1, 0).hops
    for size in (1 << 20, 50, 0):
        area = np.zeros(size, np.uint8)
        packed = pack(hops, area)
        assert (packed == hops) == (size < 100)
        assert equal(unpack(packed, area), hops)
    assert unpack(pack([], area), area) == []


def test_the_usual_size_is_that_of_the_paper_and_holds_usual_batches() -> None:
    assert usual_inputs(10, [25, 10], 8.0, 10_000) == 10 * 8 * 8
    assert usual_inputs(10, [5, ALL], 8.0, 10_000) == 10 * 5 * 8
    assert usual_inputs(10, [25, 10], 8.0, 300) == 300
    assert usual_inputs(0, [25], 8.0, 300) == 1 and usual_inputs(10, [4], 0.5, 300) == 10
    indptr, indices = random_graph(20_000, 30)
    sampler = NeighborSampler(indptr, indices, [10, 5])
    hops = sampler.sample(np.arange(0, 20_000, 100), 1)
    needed = sum(array.nbytes for hop in hops for array in (hop.sources, hop.target_index, hop.indptr, hop.indices))
    held = hop_bytes(200, [10, 5], len(indices) / 20_000, 20_000)
    assert needed < held < 3 * needed
    assert pack(hops, np.zeros(held, np.uint8)) != hops


@pytest.mark.parametrize("number", [0, 1])
def test_a_killed_worker_is_named_at_once(graph: Graph, number: int) -> None:
    batches, before = batches_of(graph), children()
    with closing(loader_of(batches, make_workers(batches, num_slots=1))) as loader:
        made = loader.epoch(1)
        next(made), next(made)
        pid = sorted(children() - before)[number]
        os.kill(pid, signal.SIGKILL)
        begin = time.monotonic()
        with pytest.raises(FullGNNError) as raised:
            list(made)
        assert time.monotonic() - begin < 10
    wanted = rf"sampling worker {number} of rank 7 \(process {pid}\) was killed \(SIGKILL\), as the system does when"
    assert re.match(wanted, str(raised.value)) and "\n" not in str(raised.value)
    assert children() == before


def test_a_stopped_worker_is_named_after_the_timeout(graph: Graph) -> None:
    batches, before = batches_of(graph), children()
    with closing(loader_of(batches, make_workers(batches, num_slots=1))) as loader:
        made = loader.epoch(1)
        next(made)
        pid = max(children() - before)
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(FullGNNError, match=rf"^sampling worker 1 of rank 7 \(process {pid}\) has been stopped for"):
            list(made)
    assert children() == before


def failing(batches: BatchSampler) -> Callable:
    def sample(epoch: int, number: int):  # type: ignore[no-untyped-def]
        if number == 3:
            raise ZeroDivisionError("a bug")
        return batches.sample(epoch, number)

    return sample


def test_a_bug_of_a_worker_is_shown_with_its_traceback(graph: Graph) -> None:
    batches, before = batches_of(graph), children()
    slot = slot_type(900, NUM_FEATURES, np.dtype(np.float32), 1 << 20)
    workers = Workers(failing(batches), plain(batches), slot, 2, 2, rank=0, timeout_s=60)
    with closing(loader_of(batches, workers)) as loader:
        with pytest.raises(RuntimeError, match="(?s)worker 1 of rank 0 failed:.*in sample.*ZeroDivisionError: a bug"):
            list(loader.epoch(1))
    assert children() == before


def test_nothing_is_left_of_twenty_epochs_and_of_twenty_loaders(graph: Graph) -> None:
    batches, usage = batches_of(graph), list[tuple[int, int, int, int]]()
    with closing(loader_of(batches, make_workers(batches))) as loader:
        for epoch in range(20):
            for _ in loader.epoch(epoch):
                pass
            usage.append(held())
    assert usage[-1][0] == usage[1][0] and usage[-1][1] == usage[1][1] and usage[-1][3] == usage[1][3]
    assert usage[-1][2] <= usage[1][2] + 5  # the allocator may map more memory
    usage.clear()
    for _ in range(20):
        with closing(loader_of(batches, make_workers(batches))) as loader:
            next(loader.epoch(1))
        del loader
        usage.append(held())
    assert usage[-1][0] == usage[1][0] and usage[-1][1] == usage[1][1] and usage[-1][3] == usage[1][3]
    assert usage[-1][2] <= usage[1][2] + 5


def test_workers_end_with_their_rank(graph: Graph) -> None:
    """A rank that is killed cannot end its workers."""
    batches, (ours, theirs) = batches_of(graph), os.pipe()
    rank = os.fork()
    if rank == 0:
        before = children()
        workers = make_workers(batches)
        os.write(theirs, " ".join(map(str, children() - before)).encode())
        assert workers.num_hops == 2
        time.sleep(60)
        os._exit(0)
    pids = [int(pid) for pid in os.read(ours, 100).split()]
    assert len(pids) == 2 and all(os.path.exists(f"/proc/{pid}") for pid in pids)
    os.kill(rank, signal.SIGKILL)
    os.waitpid(rank, 0)
    deadline = time.monotonic() + 5
    while any(alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(alive(pid) for pid in pids)
    os.close(ours)
    os.close(theirs)


def alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.sample(2)
@pytest.mark.parametrize("model", ["sage", "gcn"])
def test_runs_with_workers_are_those_without(ranks, tmp_path: Path, graph_files, model: str) -> None:
    keys = [*MODELS[model], "train.checkpoint_every=1"]
    results = [
        ranks(2)(run, case(graph_files["weighted"], tmp_path / f"w{count}", *keys, f"loader.num_workers={count}"))[0]
        for count in (0, 1, 2)
    ]
    same(results[0], results[1], 0)
    same(results[0], results[2], 0)
    times = results[2]["record"]["sampling"]["time_ms"]
    assert times["sample"] > 0 and times["gather"] > 0 and times["wait"] > 0 and times["backward"] > 0
