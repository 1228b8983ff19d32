"""How ranks come to their parts: over a folder, over messages, in a process of its own; nothing global stays."""

import faulthandler
import gc
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from fullgnn.config import Config
from fullgnn.distributed import World
from fullgnn.engine import Run, set_up
from fullgnn.errors import ConfigError, DataError, FullGNNError, UnsupportedError
from fullgnn.graph import Graph
from fullgnn.prepare import process, source
from fullgnn.prepare.process import PreparationWorker, own_process, own_process_of_rank0
from fullgnn.prepare.source import prepared_graph
from fullgnn.telemetry.meter import Meter
from tests.cases import config, dense_graph, layout_overrides
from tests.schemes.training import step_of


def prepare_run(world: World, cfg: Config, graph: Graph | None, blind: bool) -> Run:
    """Set up a run; with ``blind``, each pair of ranks is a machine that sees its own files only."""
    seen = world if not blind else replace(world, local_size=2)
    sees, there = source.sees_folder, seen.rank < seen.local_size
    with mock.patch.object(source, "sees_folder", (lambda path: there and sees(path)) if blind else sees):
        return set_up(cfg, seen, Meter(world.device), graph if world.rank == 0 else None)


def step(world: World, cfg: Config, graph: Graph, blind: bool) -> dict[str, Any]:
    return step_of(prepare_run(world, cfg, graph, blind))


def assert_equal_steps(arrays: dict[str, Any], other: dict[str, Any]) -> None:
    assert arrays.keys() == other.keys()
    for name, value in arrays.items():
        if isinstance(value, np.ndarray):
            assert np.array_equal(value, other[name]), name


@pytest.mark.sample(4)
@pytest.mark.parametrize("kind", ["symmetric", "weighted"])
@pytest.mark.parametrize("replication", [1, 2])
def test_a_machine_that_does_not_see_the_folder_gets_its_parts(ranks, kind: str, replication: int) -> None:
    cfg = config(*layout_overrides(replication), "reorder=rcm", "runtime.dtype=float64", "model.dropout=0.4")
    graph = dense_graph(kind).graph()
    together, apart = (ranks(4)(step, cfg, graph, blind) for blind in (False, True))
    for arrays, other in zip(together, apart):
        assert_equal_steps(arrays, other)


def key_and_step(world: World, cfg: Config) -> tuple[str, dict[str, Any]]:
    run = prepare_run(world, cfg, None, blind=True)
    return run.prepared_key, step_of(run)


def test_a_machine_that_does_not_see_the_cache_knows_the_key(ranks, tmp_path: Path) -> None:
    """By it, all ranks decide alike whether they look for A @ H0 in the cache, which they do together."""
    cfg = config("dataset=digits", "scheme=1d", f"runtime.cache_dir={tmp_path}", "model.input_dropout=0")
    computed, loaded = ranks(4)(key_and_step, cfg), ranks(4)(key_and_step, cfg)
    (folder,) = (tmp_path / "prepared").iterdir()
    assert {key for key, _ in computed + loaded} == {folder.name}
    assert len(list((tmp_path / "aggregation").iterdir())) == 4
    for (_, before), (_, after) in zip(computed, loaded, strict=True):
        assert_equal_steps(before, after)


def damaged(world: World, cfg: Config, file: str) -> str:
    with pytest.raises(DataError) as caught:
        set_up(cfg, world, Meter(world.device))
    return str(caught.value)


def test_damage_of_one_part_is_one_error_on_every_rank(ranks, tmp_path: Path) -> None:
    cfg = config("dataset=karate", "scheme=1d", f"runtime.cache_dir={tmp_path}")
    ranks(2)(sizes_that_stay, cfg, None)
    (path,) = (tmp_path / "prepared").iterdir()
    file = path / "part_1" / "features.npy"
    file.write_bytes(file.read_bytes()[:-1] + b"\1")
    messages = ranks(2)(damaged, cfg, str(file))
    assert messages[0] == messages[1] and f"{file} (checksum): delete the folder {path}" in messages[0]


def without_metis(world: World, cfg: Config) -> tuple[str, str, Path | None]:
    """The order that was used, and the key and the folder of the prepared graph."""
    with mock.patch.dict(sys.modules, {"pymetis": None}):
        run = set_up(cfg, world, Meter(world.device))
    return run.facts.methods.reorder, run.prepared_key, run.prepared_folder


def test_an_order_that_takes_the_place_of_another_is_not_kept(ranks, tmp_path: Path) -> None:
    metis = ["reorder=metis", "reorder.cluster_size=5"]
    cfg = config("dataset=karate", "scheme=1d", *metis, f"runtime.cache_dir={tmp_path}")
    assert ranks(2)(without_metis, cfg) == [("rcm", "", None)] * 2
    assert not list(tmp_path.glob("prepared/*")) and not list(tmp_path.glob("aggregation/*"))


def sizes_that_stay(world: World, cfg: Config, graph: Graph | None) -> int:
    """The largest number of elements of an array or tensor that a job holds after set-up."""
    job = set_up(cfg, world, Meter(world.device), graph)
    gc.collect()
    seen, waiting, most = set(), [job, *vars(job).values()], 0
    while waiting:
        item = waiting.pop()
        if id(item) in seen or isinstance(item, (type, World)) or type(item).__name__ in ("module", "function"):
            continue
        seen.add(id(item))
        if isinstance(item, (torch.Tensor, np.ndarray)):
            most = max(most, item.size if isinstance(item, np.ndarray) else item.numel())
            continue
        waiting += gc.get_referents(item)
    return most


@pytest.mark.parametrize("kind", ["undirected", "directed"])
def test_nothing_of_global_size_stays_on_a_rank(ranks, kind: str) -> None:
    """Neither the rows of all nodes, nor a mask of them, nor all non-zeros."""
    num_nodes = 4000
    ring = np.arange(num_nodes)
    arcs = np.stack([ring, (ring + 1) % num_nodes])
    if kind == "undirected":
        arcs = np.concatenate([arcs, arcs[::-1]], axis=1)
    graph = Graph.from_edge_index(
        arcs, features=np.ones((num_nodes, 1)), labels=ring % 2, train_mask=ring % 3 == 0, val_mask=ring % 3 == 1
    )
    cfg = config("scheme=1d", "model.hidden_channels=1", "optimizations.loss_rows_only=true", "runtime.threads=1")
    most = ranks(4)(sizes_that_stay, cfg, graph)
    assert max(most) < num_nodes, most


def test_functions_run_in_a_process_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for forks in (True, False):
        monkeypatch.setattr(process, "can_fork", lambda forks=forks: forks)
        with own_process(timeout_s=60) as worker:
            pid = worker.call(os.getpid)
            assert pid != os.getpid() and worker.call(os.getpid) == pid
            with pytest.raises(ConfigError, match="mine"):
                worker.call(_refuse, "mine")
            with pytest.raises(ZeroDivisionError) as caught:
                worker.call(_divide_by, 0)
            assert "in _divide_by" in str(caught.value.__cause__)
            assert worker.call(divmod, 7, 2) == (3, 1)
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    with own_process_of_rank0(timeout_s=60) as worker:  # without ranks
        assert worker.call(os.getpid) == os.getpid()


def _divide_by(number: int) -> float:
    return 1 / number


class _Remembers(PreparationWorker):
    """Counts how often it is closed."""

    times = 0

    def close(self) -> None:
        self.times += 1


def closed(world: World, cfg: Config) -> int:
    worker = _Remembers()
    with prepared_graph(source.Preparation(cfg, world.size), world, worker):
        return worker.times


def test_the_process_has_ended_before_a_rank_reads_its_part(ranks) -> None:
    assert ranks(2)(closed, config("dataset=karate", "scheme=1d")) == [1, 1]


def test_a_graph_that_was_looked_at_is_not_loaded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []
    load = source.load_dataset
    monkeypatch.setattr(source, "load_dataset", lambda node: loaded.append(node["name"]) or load(node))
    cfg = config("dataset=karate", "scheme=1d")
    graph = source.loaded_dataset(cfg.dataset)
    for num_parts in (1, 2):
        source.Preparation(cfg, num_parts, graph).in_memory()  # as a planner does
    assert source.loaded_dataset(cfg.dataset) is graph
    source.Preparation(cfg, 2).in_memory()
    assert loaded == ["karate"] and source.loaded_dataset(cfg.dataset) is not graph


def _refuse(text: str) -> None:
    raise ConfigError(text)


@pytest.mark.parametrize(
    ("number", "said", "timeout_s"),
    [
        (signal.SIGKILL, "was ended by SIGKILL: if memory was too little, prepare", 60.0),
        (signal.SIGSEGV, "was ended by SIGSEGV: start again; if it ends so again, report", 60.0),
        (signal.SIGSTOP, "has been stopped for runtime.timeout_s=1.5 s: start again", 1.5),
    ],
)
def test_a_process_that_was_killed_or_stopped_is_named(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals, said: str, timeout_s: float
) -> None:
    monkeypatch.setattr(process, "can_fork", lambda: True)
    begin = time.monotonic()
    with own_process(timeout_s=timeout_s) as worker, pytest.raises(UnsupportedError, match=said):
        worker.call(_end_this_by, number)
    assert time.monotonic() - begin < 20  # a process that ended is not waited for, a stopped one for timeout_s


def _end_this_by(number: signal.Signals) -> None:
    faulthandler.disable()  # pytest has enabled it
    os.kill(os.getpid(), number)


def refused(world: World, cfg: Config) -> str:
    with pytest.raises(FullGNNError) as caught, prepared_graph(source.Preparation(cfg, 3), world):
        pass
    return str(caught.value)


def test_a_user_error_of_the_preparation_is_one_error_on_every_rank(ranks, tmp_path: Path) -> None:
    cfg = config("dataset=npz", f"dataset.path={tmp_path}/none.npz")
    messages = ranks(3)(refused, cfg)
    assert len(set(messages)) == 1 and "no file" in messages[0]
