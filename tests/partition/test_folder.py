"""A prepared graph holds, in memory and in a folder, what the dense matrix has; damage of the folder is named."""

import errno
import json
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullgnn.config import Config
from fullgnn.errors import ConfigError, DataError
from fullgnn.graph import Graph
from fullgnn.graph.sparse_features import to_dense
from fullgnn.partition import folder as folders
from fullgnn.partition.facts import GraphFacts
from fullgnn.partition.folder import LAYOUT, open_folder, write_folder
from fullgnn.partition.prepared import LISTS, PreparedGraph
from fullgnn.prepare.source import Preparation
from fullgnn.tasks import takes_links
from tests.cases import config, dense_graph
from tests.tasks.draws import bipartite

KINDS = ("symmetric", "directed", "weighted", "isolated", "tiny", "words")


def case(cache: Path | None, *overrides: str) -> Config:
    place = "null" if cache is None else str(cache)
    return config("partition=random", "reorder=rcm", f"runtime.cache_dir={place}", *overrides)


def made(kind: str, num_parts: int, path: Path | None = None) -> PreparedGraph:
    prepared = Preparation(case(None), num_parts, dense_graph(kind).graph()).in_memory()
    return prepared if path is None else open_folder(write_folder(prepared, path))


@pytest.mark.sample(4)
@pytest.mark.parametrize("in_folder", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_parts", [1, 3, 5])
def test_the_parts_are_those_of_the_dense_matrix(tmp_path: Path, kind: str, num_parts: int, in_folder: bool) -> None:
    dense, prepared = dense_graph(kind), made(kind, num_parts, tmp_path / "graph" if in_folder else None)
    facts = prepared.facts
    order = np.concatenate([part.node_id for part in prepared.parts()])
    assert np.array_equal(np.sort(order), np.arange(len(dense.adj))) and (in_folder or prepared.folder is None)
    adj = dense.adj[np.ix_(order, order)]
    train, bounds = dense.train_mask[order], facts.partition.bounds
    assert facts.symmetric == np.array_equal(adj, adj.T) and facts.weighted == (kind == "weighted")
    assert (facts.num_nodes, facts.num_edges) == (len(adj), np.count_nonzero(adj))
    for number, part in enumerate(prepared.parts()):
        rows = facts.partition.slice(number)
        assert np.array_equal(part.rows.matrix(len(adj)).toarray(), adj[rows])
        assert (part.columns is None) == facts.symmetric
        columns = part.columns or part.rows
        assert np.array_equal(columns.matrix(len(adj)).toarray(), adj.T[rows])
        assert np.array_equal(to_dense(part.features[:]), dense.features[order][rows])
        assert np.array_equal(part.labels, dense.labels[order][rows])
        masks = dense.train_mask, dense.val_mask, np.zeros(len(adj), bool)
        assert np.array_equal(part.masks, [mask[order][rows] for mask in masks])
        assert np.array_equal(part.arrays["reads"], np.flatnonzero(adj[rows].any(axis=0)))
        assert np.array_equal(part.arrays["reads_train"], np.flatnonzero(adj[rows][train[rows]].any(axis=0)))
        if not facts.symmetric:
            assert np.array_equal(part.arrays["columns_reads"], np.flatnonzero(adj.T[rows].any(axis=0)))
        for name, array in part.arrays.items():
            assert array.dtype == {"indices": np.int32, "reads": np.int32}.get(name, array.dtype)
    full = adj.copy()
    np.fill_diagonal(full, 1)
    for matrix, self_loops in ((adj, False), (full, True)):
        blocks = [np.split(block_row, bounds[1:-1], axis=1) for block_row in np.split(matrix, bounds[1:-1])]
        assert np.array_equal(facts.block_nnz(self_loops), [[np.count_nonzero(b) for b in row] for row in blocks])
        of_train = [
            np.split(block_row[chosen], bounds[1:-1], axis=1)
            for block_row, chosen in zip(np.split(matrix, bounds[1:-1]), np.split(train, bounds[1:-1]))
        ]
        expected = [[np.count_nonzero(block) for block in row] for row in of_train]
        assert np.array_equal(facts.counts.train_block_nnz(self_loops), expected)
    assert facts.num_split_nodes == (dense.train_mask.sum(), dense.val_mask.sum(), 0)


def test_a_folder_keeps_facts_and_pairs(tmp_path: Path) -> None:
    cfg = case(None, "task=link_ranking", "model=lightgcn")
    prepared = Preparation(cfg, 3, bipartite(30, 20, 0.2)).in_memory()
    opened = open_folder(write_folder(prepared, tmp_path / "graph"))
    assert opened.facts.to_json() == prepared.facts.to_json() and opened.facts.nodes == prepared.facts.nodes
    for part, other in zip(prepared.parts(), opened.parts()):
        assert set(part.arrays) == set(other.arrays)
        for name in part.arrays:
            assert np.array_equal(part.arrays[name][:], other.arrays[name])
            assert part.arrays[name].dtype == other.arrays[name].dtype
        assert set(part.pairs) == set(LISTS) and part.first_pairs.shape == (3, len(part.node_id))
    old = opened.facts.to_json()  # of a version that did not count them
    assert old["nodes"]["links"].pop("num_without_negative") == 0
    assert GraphFacts.from_json(old).nodes == opened.facts.nodes


def test_writing_to_an_array_leaves_the_folder_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "SMALL", 0)  # all files are mapped
    prepared = made("symmetric", 2, tmp_path / "graph")
    features = prepared.part(0).features[:]
    features[:] = 7
    assert not (made("symmetric", 2).part(0).features[:] == 7).any()
    assert not (open_folder(tmp_path / "graph").part(0).features[:] == 7).any()


def read_all(path: Path) -> None:
    for part in open_folder(path).parts():
        for name in part.arrays:
            part.arrays[name]


@pytest.mark.parametrize("kind", ["weighted", "words"])
def test_every_flipped_byte_is_named(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "graph"
    made(kind, 2, path)
    read_all(path)
    for file in sorted(path.glob("part_*/*.npy")):
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
        with pytest.raises(DataError, match=rf"damaged: {file} \(checksum\): delete the folder {path},"):
            read_all(path)
        content[-1] ^= 1
        file.write_bytes(content)
    read_all(path)


def test_what_is_missing_or_of_another_version_is_named(tmp_path: Path) -> None:
    path = tmp_path / "graph"
    made("directed", 2, path)
    (path / "part_1").rename(path / "gone")
    with pytest.raises(DataError, match=rf"damaged: {path}/part_1/\w+.npy \(No such file or directory\): delete"):
        read_all(path)
    (path / "gone").rename(path / "part_1")
    file = path / "part_0" / "features.npy"
    content = file.read_bytes()
    file.write_bytes(content[:-8])
    with pytest.raises(DataError, match=rf"{file} \({len(content) - 8} bytes instead of {len(content)}\)"):
        read_all(path)
    file.write_bytes(content)
    about = json.loads((path / LAYOUT).read_text())
    (path / LAYOUT).write_text(json.dumps(about | {"format": 99}))
    with pytest.raises(DataError, match=rf"{path} has the format 99 of prepared graphs, and this fullgnn reads 1: del"):
        open_folder(path)
    for text in ("", "[]", "{", json.dumps(about | {"facts": {}}), json.dumps(about | {"files": {"x": 1}})):
        (path / LAYOUT).write_text(text)
        with pytest.raises(DataError, match=rf"damaged: {path}/layout.json \(.*\): delete the folder {path}, and"):
            open_folder(path)
    (path / LAYOUT).unlink()
    with pytest.raises(DataError, match="layout.json"):
        open_folder(path)


def test_a_folder_that_cannot_be_written_is_a_user_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> list[int]:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(folders, "write_npy", full)
    with pytest.raises(ConfigError, match=rf"cannot be written to {tmp_path} \(No space left on device\): choose"):
        made("symmetric", 2, tmp_path / "graph")
    assert not list(tmp_path.iterdir())


GRAPH = dense_graph("weighted").graph()


def _killed_while_it_writes(cfg: Config, place: Path) -> None:
    written, write = [], folders.write_npy

    def write_some(file: Path, array: np.ndarray) -> list[int]:
        if len(written) == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        written.append(file)
        return write(file, array)

    folders.write_npy = write_some
    Preparation(cfg, 2, GRAPH).in_folder(place)


def test_a_killed_preparation_leaves_nothing_that_is_read(tmp_path: Path) -> None:
    cfg = case(tmp_path / "cache")
    process = multiprocessing.get_context("fork").Process(target=_killed_while_it_writes, args=(cfg, tmp_path / "x"))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    (left,) = (tmp_path / "cache" / "prepared").iterdir()
    assert left.name.startswith(".") and not (left / LAYOUT).exists() and list(left.rglob("*.npy"))
    path, was_kept = Preparation(cfg, 2, GRAPH).in_folder(tmp_path / "x")
    assert not was_kept and path != left
    read_all(path)
    assert Preparation(cfg, 2, GRAPH).in_folder(tmp_path / "x") == (path, True)


def _prepare_together(cfg: Config, place: Path, barrier, results) -> None:
    rename = Path.rename

    def rename_together(self: Path, target: Path) -> Path:
        barrier.wait(60)  # both have written everything
        return rename(self, target)

    Path.rename = rename_together
    results.put(Preparation(cfg, 2, GRAPH).in_folder(place))


def test_two_jobs_that_prepare_the_same_graph_at_once_share_one_folder(tmp_path: Path) -> None:
    fork, cfg = multiprocessing.get_context("fork"), case(tmp_path)
    barrier, results = fork.Barrier(2), fork.Queue()
    jobs = [fork.Process(target=_prepare_together, args=(cfg, tmp_path / "x", barrier, results)) for _ in range(2)]
    for job in jobs:
        job.start()
    outcomes = [results.get(timeout=60) for _ in jobs]
    for job in jobs:
        job.join()
        assert job.exitcode == 0
    (path,) = (tmp_path / "prepared").iterdir()
    assert outcomes == [(path, False)] * 2
    read_all(path)


def test_the_key_covers_what_the_folder_depends_on(tmp_path: Path) -> None:
    def key(*overrides: str, num_parts: int = 2, graph: Graph | None = GRAPH) -> str:
        return Preparation(case(tmp_path, *overrides), num_parts, graph).here().key

    first = key()
    same = [key("model.hidden_channels=3"), key("normalization=row"), key("self_loops=false"), key("scheme=1.5d")]
    assert set(same) == {first}
    others = [
        key("partition=contiguous"),
        key("reorder=degree"),
        key("reorder.scope=whole", "partition=nnz"),
        key("seed=1"),  # partition=random looks at it
        key(num_parts=3),
        key(graph=dense_graph("directed").graph()),
    ]
    assert len({first, *others}) == 1 + len(others)
    without_seed = [key("partition=contiguous", f"seed={seed}") for seed in (0, 1)]
    assert without_seed[0] == without_seed[1] == others[0]


def test_a_file_that_changes_is_prepared_anew(tmp_path: Path) -> None:
    file = tmp_path / "mine.npz"
    cfg = case(tmp_path / "cache", "dataset=npz", f"dataset.path={file}")
    keys = []
    for kind in ("symmetric", "directed", "directed"):
        dense_graph(kind).graph().save(file)
        os.utime(file, ns=(0, len(keys)))  # a clock with coarse ticks could give both the same time
        keys.append(Preparation(cfg, 2).here().key)
        assert Preparation(cfg, 2).here().facts.load_time_s == 0
        assert Preparation(cfg, 2).here().facts.symmetric == (kind == "symmetric")
    assert len(set(keys)) == 3 and len(list((tmp_path / "cache" / "prepared").iterdir())) == 3


def test_pairs_of_an_older_definition_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pairs of a directed graph had a direction once. Folders without pairs are as they were."""
    now, graph = Preparation.settings, dense_graph("directed").graph()

    def before(preparation: Preparation) -> dict[str, Any]:
        task = preparation.cfg.task
        return now(preparation) | {"task_node": task if takes_links(task) else None}

    for overrides, same in ((["task=link_prediction"], False), ([], True)):
        cfg = case(tmp_path, *overrides)
        monkeypatch.setattr(Preparation, "settings", before)
        old = Preparation(cfg, 2, graph).here().key
        monkeypatch.setattr(Preparation, "settings", now)
        assert (Preparation(cfg, 2, graph).here().key == old) == same
