"""MAG240M in a tiny folder that is written here in its layout, against dense float64 arithmetic."""

import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fullgnn import train, train_minibatch
from fullgnn.distributed import World
from fullgnn.errors import ConfigError, DataError
from fullgnn.graph import Graph, check_dataset, dataset_files, load_dataset
from fullgnn.graph.datasets import mag240m, mag240m_features, mag240m_files
from fullgnn.graph.datasets._means_cpu import neighbor_means
from fullgnn.graph.datasets.torch_dict import read_torch_dict
from tests.cases import config, minibatch_config
from tests.damage import assert_refused_or_right, damaged

PAPERS, AUTHORS, INSTITUTIONS, WIDTH, CLASSES = 40, 15, 4, 6, 5
CITES, WRITES, AFFILIATED = mag240m_files.RELATIONS
AGAIN = "unpack it again from mag240m_kddcup2021.zip"


def content() -> dict[str, Any]:
    """By the names of the files, dictionaries and arrays. Edges are repeated, in both directions, and from a paper to
    itself; the last author has no paper, the last institution no author, and test papers have no label."""
    rng = np.random.default_rng(0)
    paper, author = rng.integers(PAPERS, size=(3, 120)), rng.integers(AUTHORS - 1, size=(2, 60))
    cites = np.stack([paper[0], paper[1]])
    writes = np.stack([author[0], paper[2, :60]])
    affiliated = np.stack([author[1, :20], rng.integers(INSTITUTIONS - 1, size=20)])
    order = rng.permutation(PAPERS)
    labels = rng.integers(CLASSES, size=PAPERS).astype(np.float32)
    labels[order[20:]] = np.nan
    split = {"train": order[:12], "valid": order[12:17], "test-dev": order[17:23], "test-challenge": order[23:26]}
    counts = {"paper": PAPERS, "author": AUTHORS, "institution": INSTITUTIONS}
    return {
        "meta.pt": counts | {"num_classes": CLASSES},
        "split_dict.pt": split,
        "processed/paper/node_feat.npy": rng.normal(size=(PAPERS, WIDTH)).astype(np.float16),
        "processed/paper/node_label.npy": labels,
        "processed/paper/node_year.npy": np.full(PAPERS, 2019),
        f"processed/{CITES}/edge_index.npy": np.concatenate([cites, cites[::-1, :9], cites[:, :5], [[3], [3]]], axis=1),
        f"processed/{WRITES}/edge_index.npy": np.concatenate([writes, writes[:, :7]], axis=1),
        f"processed/{AFFILIATED}/edge_index.npy": np.concatenate([affiliated, affiliated[:, :2]], axis=1),
    }


def write(folder: Path, files: dict[str, Any]) -> Path:
    for name, value in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(value, bytes):
            file.write_bytes(value)
        elif file.suffix == ".pt":
            torch.save(value, file)
        else:
            np.save(file, value)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "mag240m_kddcup2021", content())


@pytest.fixture
def load(folder: Path, compose_dataset: Callable[..., dict[str, Any]]) -> Callable[..., Graph]:
    """Loads the folder, with some keys, and with some files changed."""

    def load_changed(changed: dict[str, Any] | None = None, **keys: Any) -> Graph:
        write(folder, changed or {})
        return load_dataset(compose_dataset("mag240m", path=str(folder), **keys))

    return load_changed


def reference(files: dict[str, Any], num_papers: int = PAPERS) -> dict[str, np.ndarray]:
    """The dense adjacency, the features and the labels of the first papers, and of what belongs to them."""
    counts = [files["meta.pt"][kind] for kind in ("paper", "author", "institution")]
    starts = [0, counts[0], counts[0] + counts[1]]
    adj = np.zeros((sum(counts), sum(counts)))
    for name, (first, second) in {CITES: (0, 0), WRITES: (1, 0), AFFILIATED: (1, 2)}.items():
        for u, v in files[f"processed/{name}/edge_index.npy"].T:
            adj[starts[first] + u, starts[second] + v] = adj[starts[second] + v, starts[first] + u] = 1
    papers, authors, institutions = (slice(first, first + count) for first, count in zip(starts, counts))
    kept = np.ones(len(adj), bool)
    if num_papers < counts[0]:
        kept[papers] = np.arange(counts[0]) < num_papers
        kept[authors] = adj[authors, :num_papers].any(axis=1)
        kept[institutions] = adj[institutions, authors][:, kept[authors]].any(axis=1)
    adj = np.where(kept[:, None] & kept, adj, 0)

    def mean(rows: slice, columns: slice) -> np.ndarray:
        block = adj[rows, columns]
        return (block @ features[columns] / np.maximum(block.sum(axis=1), 1)[:, None]).astype(np.float16)

    features = np.zeros((len(adj), files["processed/paper/node_feat.npy"].shape[1]))
    features[papers] = files["processed/paper/node_feat.npy"]
    features[authors] = mean(authors, papers)
    features[institutions] = mean(institutions, authors)
    labels = np.full(len(adj), -1)
    given = files["processed/paper/node_label.npy"]
    labels[papers] = [-1 if np.isnan(label) else int(label) for label in given]
    return {"adj": adj[kept][:, kept], "features": features[kept], "labels": labels[kept]}


def assert_equal(graph: Graph, expected: dict[str, np.ndarray]) -> None:
    np.testing.assert_array_equal(graph.adjacency().toarray(), expected["adj"])
    np.testing.assert_array_equal(graph.features, expected["features"])
    np.testing.assert_array_equal(graph.labels, expected["labels"])


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("small_blocks", [False, True])
def test_the_graph_is_the_one_of_dense_arithmetic(
    load: Callable[..., Graph], monkeypatch: pytest.MonkeyPatch, small_blocks: bool, num_threads: int
) -> None:
    torch.set_num_threads(num_threads)
    if small_blocks:
        monkeypatch.setattr(mag240m_files, "EDGES_AT_ONCE", 7)
        monkeypatch.setattr(mag240m_features, "BLOCK_BYTES", 4 * 2 * WIDTH)  # 4 rows
        monkeypatch.setattr(mag240m_features, "PROGRESS_S", 0)
    files, graph = content(), load()
    expected = reference(files)
    assert_equal(graph, expected)
    assert (graph.name, graph.num_classes, graph.weight) == ("mag240m", CLASSES, None)
    alone = expected["adj"].sum(axis=1) == 0
    assert alone[PAPERS + AUTHORS - 1] and alone[-1]  # no paper, and no author
    assert not graph.features[[PAPERS + AUTHORS - 1, -1]].any()


def test_masks_have_the_papers_of_the_split_that_have_labels(load: Callable[..., Graph]) -> None:
    files, graph = content(), load()
    split, known = files["split_dict.pt"], ~np.isnan(files["processed/paper/node_label.npy"])
    test = np.concatenate([split["test-dev"], split["test-challenge"]])
    for mask, ids in ((graph.train_mask, split["train"]), (graph.val_mask, split["valid"]), (graph.test_mask, test)):
        np.testing.assert_array_equal(np.flatnonzero(mask), np.sort(ids[known[ids]]))
    arcs = sum(2 * value.shape[1] for name, value in files.items() if "edge_index" in name) - 1  # a loop is one arc
    loops = (files[f"processed/{CITES}/edge_index.npy"][0] == files[f"processed/{CITES}/edge_index.npy"][1]).sum()
    assert graph.remarks == {"unlabelled_split_nodes": 6, "merged_arcs": arcs - (loops - 1) - graph.num_edges}


@pytest.mark.parametrize("num_papers", [1, 11, PAPERS, 1000])
def test_the_first_papers_bring_their_authors_and_institutions(load: Callable[..., Graph], num_papers: int) -> None:
    expected = reference(content(), num_papers)
    assert_equal(load(max_papers=num_papers), expected)
    assert_equal(load(), reference(content()))  # of another file of features


@pytest.mark.parametrize(
    "split",
    [
        lambda split: {name: torch.from_numpy(ids) for name, ids in split.items()},
        lambda split: {name: ids.astype(np.int32) for name, ids in split.items()},
        lambda split: split | {"test-whole": np.concatenate([split["test-dev"], split["test-challenge"]])},
        lambda split: (
            {name: split[name] for name in ("train", "valid")}
            | {"test": np.concatenate([split["test-dev"], split["test-challenge"]])}
        ),
    ],
    ids=["tensors", "int32", "whole", "one array"],
)
def test_other_forms_of_the_split(load: Callable[..., Graph], split: Callable[..., dict[str, Any]]) -> None:
    before, after = load(), load({"split_dict.pt": split(content()["split_dict.pt"])})
    for mask in ("train_mask", "val_mask", "test_mask"):
        np.testing.assert_array_equal(getattr(after, mask), getattr(before, mask))


def test_edges_in_other_orders_and_dtypes(load: Callable[..., Graph]) -> None:
    before, name = load(), f"processed/{WRITES}/edge_index.npy"
    edges = content()[name]
    for other in (np.asfortranarray(edges), edges.astype(np.int32), edges[:, np.random.default_rng(1).permutation(67)]):
        after = load({name: other})
        np.testing.assert_array_equal(after.indices, before.indices)
        np.testing.assert_array_equal(after.features, before.features)
    alone = load({name: np.empty((2, 0), np.int64)})
    assert not alone.features[PAPERS:].any()


def test_every_float16_is_averaged_exactly() -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    rows = every[np.isfinite(every)][:, None]
    node = np.arange(len(rows))
    of_one = neighbor_means(np.arange(len(rows) + 1), node.astype(np.int32), slice(0, len(rows)), rows, 0)
    np.testing.assert_array_equal(of_one, rows)
    pairs = np.random.default_rng(0).integers(len(rows), size=(len(rows), 2)).astype(np.int32)
    of_two = neighbor_means(2 * np.arange(len(rows) + 1), pairs.reshape(-1), slice(0, len(rows)), rows, 0)
    np.testing.assert_array_equal(of_two, rows[pairs].astype(np.float64).mean(axis=1).astype(np.float16))


# The file of the features.


def test_features_are_mapped_and_written_once(load: Callable[..., Graph], folder: Path, tmp_path: Path) -> None:
    file = folder / "homogeneous" / "mag240m_features.npy"
    graph = load()
    assert graph.features.dtype == np.float16 and not graph.features.flags.owndata
    written = file.stat().st_mtime_ns
    assert sorted(path.name for path in file.parent.iterdir()) == ["mag240m_features.json", "mag240m_features.npy"]
    assert_equal(load(), reference(content()))
    assert file.stat().st_mtime_ns == written
    elsewhere = tmp_path / "cache"
    assert_equal(load(cache_dir=str(elsewhere), max_papers=9), reference(content(), 9))
    assert (elsewhere / "mag240m_features_9.npy").is_file() and file.stat().st_mtime_ns == written


@pytest.mark.parametrize("what", ["paper/node_feat.npy", f"{WRITES}/edge_index.npy", f"{AFFILIATED}/edge_index.npy"])
def test_features_of_other_files_are_written_anew(load: Callable[..., Graph], what: str, caplog) -> None:
    load()
    files, name = content(), f"processed/{what}"
    files[name] = files[name][::-1].copy() if "node_feat" in what else files[name][:, 3:]
    caplog.set_level(logging.INFO)
    assert_equal(load({name: files[name]}), reference(files))
    assert "was made of other files" in caplog.text


@pytest.mark.parametrize("damage", ["truncated", "longer", "other dtype", "other shape", "no json", "json", "touched"])
def test_damaged_features_are_written_anew(load: Callable[..., Graph], folder: Path, damage: str, caplog) -> None:
    load()
    file = folder / "homogeneous" / "mag240m_features.npy"
    about, stat, rows = file.with_suffix(".json"), file.stat(), np.load(file)
    if damage == "truncated":
        os.truncate(file, stat.st_size - 1)
    elif damage == "longer":
        file.write_bytes(file.read_bytes() + b"0")
    elif damage == "other dtype":
        np.save(file, rows.view(np.int16))
    elif damage == "other shape":
        np.save(file, rows[:-1])
    elif damage == "no json":
        about.unlink()
    elif damage == "json":
        about.write_text("[" * 9)
    if damage == "touched":
        file.touch()
    else:
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # as nothing does by accident
    caplog.set_level(logging.INFO)
    assert_equal(load(), reference(content()))
    assert f"{file} " in caplog.text and "it is written anew" in caplog.text
    assert json.loads(about.read_text())["written"] == file.stat().st_mtime_ns


def test_features_that_cannot_be_written(load: Callable[..., Graph], folder: Path, monkeypatch) -> None:
    (folder / "file").touch()
    with pytest.raises(ConfigError, match="dataset.cache_dir=.*file/cache cannot be written .*: choose another folder"):
        load(cache_dir=str(folder / "file" / "cache"))
    disk = type(shutil.disk_usage(folder))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: disk(1000, 900, 100))
    needed = 2 * (PAPERS + AUTHORS + INSTITUTIONS) * WIDTH
    with pytest.raises(DataError, match=f"need {needed} bytes on the disk of .*, and 100 are free: set dataset.cache"):
        load()


def test_a_graph_beyond_the_memory_is_refused(load: Callable[..., Graph], monkeypatch) -> None:
    monkeypatch.setattr("fullgnn.telemetry.machine.free_bytes", lambda: 1 << 28)
    monkeypatch.setattr(mag240m, "BYTES_OF_NODE", 1 << 23)
    with pytest.raises(DataError, match="59 nodes and 224 edges needs .* are free: .*set dataset.max_papers"):
        load()


# Wrong files.


def changed(name: str, change: Callable[[Any], Any]) -> dict[str, Any]:
    return {name: change(content()[name])}


def with_one(place: tuple[int, ...], value: float) -> Callable[[np.ndarray], np.ndarray]:
    def put(array: np.ndarray) -> np.ndarray:
        array[place] = value
        return array

    return put


FEATURES, LABELS = "processed/paper/node_feat.npy", "processed/paper/node_label.npy"
CITED, WRITTEN = f"processed/{CITES}/edge_index.npy", f"processed/{WRITES}/edge_index.npy"
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "NaN": (changed(FEATURES, with_one((21, 3), np.nan)), "node_feat.npy has nan in row 21, column 3: AGAIN"),
    "infinity": (changed(FEATURES, with_one((0, 0), -np.inf)), "node_feat.npy has -inf in row 0, column 0: AGAIN"),
    "rows": (
        changed(FEATURES, lambda x: x[:-1]),
        r"node_feat.npy has the shape \(39, 6\), and takes \(40, any\) by me",
    ),
    "dtype": (changed(FEATURES, lambda x: x.astype(np.float32)), "has the dtype float32, and takes float16: AGAIN"),
    "order": (changed(FEATURES, lambda x: x.astype(">f2")), "has the dtype >f2, and takes float16: AGAIN"),
    "no npy": ({FEATURES: b"x" * 99}, "node_feat.npy cannot be read .*: AGAIN"),
    "labels": (changed(LABELS, lambda y: y[:, None]), r"node_label.npy has the shape \(40, 1\), and takes \(40\)"),
    "class": (changed(LABELS, with_one((5,), 5)), "node_label.npy has the label 5 of paper 5, and classes are 0 to 4"),
    "half": (changed(LABELS, with_one((5,), 1.5)), "node_label.npy has the label 1.5 of paper 5, and classes are 0 to"),
    "inf label": (changed(LABELS, with_one((5,), np.inf)), "node_label.npy has the label inf of paper 5"),
    "rows of edges": (changed(CITED, lambda e: e.T), r"has the shape \(135, 2\), and takes \(2, any\)"),
    "floats": (changed(CITED, lambda e: e * 1.0), "edge_index.npy has the dtype float64, and takes int64: AGAIN"),
    "paper": (
        changed(CITED, with_one((1, 130), 40)),
        f"{CITES}/edge_index.npy has the paper 40, and meta.pt has the p",
    ),
    "negative": (
        changed(WRITTEN, with_one((1, 0), -1)),
        f"{WRITES}/edge_index.npy has the paper -1, .* 0 to 39: AGAIN",
    ),
    "author": (changed(WRITTEN, with_one((0, 0), 15)), f"{WRITES}/edge_index.npy has the author 15, .* 0 to 14: AGAIN"),
    "meta": (changed("meta.pt", lambda m: m | {"author": "15"}), "meta.pt has no number of authors: AGAIN"),
    "no papers": (changed("meta.pt", lambda m: m | {"paper": 0}), "meta.pt has no number of papers: AGAIN"),
    "no archive": ({"meta.pt": b"PK" * 99}, "meta.pt cannot be read .*: AGAIN"),
    "list": ({"meta.pt": [1, 2]}, r"meta.pt cannot be read \(it holds no dictionary\): AGAIN"),
    "part": (changed("split_dict.pt", lambda s: {"train": s["train"]}), "split_dict.pt has no array 'valid': AGAIN"),
    "ids": (
        changed("split_dict.pt", lambda s: s | {"valid": s["valid"] / 2}),
        "split_dict.pt: valid is no list of int",
    ),
    "id": (changed("split_dict.pt", lambda s: s | {"train": s["train"] + 40}), "split_dict.pt: train has the paper "),
    "overlap": (changed("split_dict.pt", lambda s: s | {"valid": s["train"][:1]}), "has the paper .* in two parts of"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files_are_named_in_one_line(load: Callable[..., Graph], folder: Path, name: str) -> None:
    files, message = WRONG[name]
    with pytest.raises(DataError, match=message.replace("AGAIN", AGAIN)) as caught:
        load(files)
    assert "\n" not in str(caught.value) and str(folder) in str(caught.value) and AGAIN in str(caught.value)
    assert not list(folder.glob("homogeneous/*"))  # nothing half-written


def test_wrong_edges_are_named_also_where_papers_are_left_out(load: Callable[..., Graph]) -> None:
    with pytest.raises(DataError, match=f"{WRITES}/edge_index.npy has the author 15"):
        load(WRONG["author"][0], max_papers=2)


@pytest.mark.parametrize("missing", [name for name in content() if "year" not in name])
def test_a_missing_file_is_refused_before_anything_is_read(folder: Path, missing: str, compose_dataset) -> None:
    node = compose_dataset("mag240m", path=str(folder))
    assert len(dataset_files(node) or []) == 7
    (folder / missing).unlink()
    for function in (check_dataset, dataset_files, load_dataset):
        with pytest.raises(DataError, match=f"no file .*{missing}: set dataset.path to the folder .* from https://"):
            function(node)


def test_mistakes_are_found_before_anything_is_loaded(folder: Path, compose_dataset) -> None:
    with pytest.raises(ConfigError, match="dataset.max_papers=0: choose 1 or more, or null"):
        check_dataset(compose_dataset("mag240m", path=str(folder), max_papers=0))
    write(folder, WRONG["rows"][0])
    with pytest.raises(DataError, match="node_feat.npy has the shape"):
        check_dataset(compose_dataset("mag240m", path=str(folder)))


SPLITS = {
    "arrays": content()["split_dict.pt"],
    "tensors": {name: torch.from_numpy(ids) for name, ids in content()["split_dict.pt"].items()},
}


def read_damaged(folder: Path, form: str, seed: int | None) -> None:
    file = folder / "split_dict.pt"
    torch.save(SPLITS[form], file)
    if seed is not None:
        file.write_bytes(damaged(file.read_bytes(), seed))
    split = read_torch_dict(file, AGAIN)
    assert split.keys() == SPLITS[form].keys()
    assert all(np.array_equal(split[name], ids) for name, ids in content()["split_dict.pt"].items())


@pytest.mark.sample(3)
@pytest.mark.parametrize("form", SPLITS)
def test_a_damaged_dictionary_is_refused_or_read_right(form: str, tmp_path: Path, every_case: bool) -> None:
    read_damaged(tmp_path, form, None)
    count = 300 if every_case else 20
    assert_refused_or_right(read_damaged, [(tmp_path, form, seed) for seed in range(count)])


def test_nothing_in_a_dictionary_is_run(tmp_path: Path) -> None:
    class Runs:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "run"),)

    torch.save({"train": Runs()}, tmp_path / "split_dict.pt")
    with pytest.raises(DataError, match="refused to load .*mkdir"):
        read_torch_dict(tmp_path / "split_dict.pt", AGAIN)
    assert not (tmp_path / "run").exists()


# Runs.


def losses(world: World, sampled: bool, keys: list[str]) -> list[float]:
    if sampled:
        keys = [*keys, "sampler.fanouts=[3,3]", "loader.batch_size=4", "loader.map_features=true"]
    cfg = (minibatch_config if sampled else config)(*keys, f"runtime.nproc={world.size}")
    (train_minibatch if sampled else train).run_on(world, cfg)
    lines = (Path(cfg.run_dir) / "epochs.jsonl").read_text().splitlines() if world.rank == 0 else []
    return [json.loads(line)["loss"] for line in lines]


@pytest.mark.sample(2)
@pytest.mark.parametrize("sampled", [False, True], ids=["full batch", "sampled"])
def test_runs_learn_as_from_a_graph_in_memory(ranks, load: Callable[..., Graph], folder: Path, sampled: bool) -> None:
    load().save(folder / "graph.npz")
    common = ["train.epochs=3", "runtime.threads=1", "overwrite=true", "model.dropout=0.2"]
    for size in (1, 2):
        curves = [
            ranks(size)(
                losses, sampled, [*common, f"dataset={name}", f"dataset.path={path}", f"run_dir={folder}/{name}"]
            )[0]
            for name, path in (("mag240m", folder), ("npz", folder / "graph.npz"))
        ]
        assert len(curves[0]) == 3 and curves[0] == curves[1]  # to the bit
