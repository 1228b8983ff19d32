"""When an earlier prepared graph is read: never of a file that has changed, and of an equal graph in memory."""

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullgnn import api
from fullgnn.config import Config
from fullgnn.config.compose import compose, load_config
from fullgnn.costs.statistics import key_of_job
from fullgnn.graph import Graph, load_dataset
from fullgnn.graph.datasets import karate, load_cached
from fullgnn.prepare import source
from fullgnn.prepare.source import Preparation
from fullgnn.storage.cache import Cache
from tests.cases import config


def club(**changes: Any) -> Graph:
    return replace(karate.load(train_per_class=4, num_val=8, seed=0), **changes)


def rewrite(path: Path, graph: Graph) -> None:
    """Write ``graph`` to ``path`` with the size and the modification time of the file that is there."""
    before = path.stat()
    graph.save(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "graph.npz"
    club().save(path)
    return path


def features_of(cfg: Config) -> np.ndarray:
    (part,) = Preparation(cfg, 1).here().parts()
    rows = part.arrays["features"]
    return np.asarray(rows[np.argsort(part.node_id)])


def test_a_file_rewritten_with_equal_size_and_time_is_read_anew(
    file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("fullgnn"), "propagate", True)
    caplog.set_level(logging.INFO)
    cfg = config("dataset=npz", f"dataset.path={file}", f"runtime.cache_dir={tmp_path}/cache", "reorder=none")
    cache = Cache(cfg.runtime.cache_dir)
    np.testing.assert_array_equal(features_of(cfg), np.eye(34))
    planned = key_of_job(cfg, 1, 1 << 20, cache)
    assert "another file" not in caplog.text and key_of_job(cfg, 1, 1 << 20, cache) == planned
    features_of(cfg)
    assert "is read from" in caplog.text and len(list((tmp_path / "cache" / "prepared").iterdir())) == 1
    rewrite(file, club(features=2 * np.eye(34, dtype=np.float32)))
    assert key_of_job(cfg, 1, 1 << 20, cache) != planned
    np.testing.assert_array_equal(features_of(cfg), 2 * np.eye(34))
    (line,) = [record.getMessage() for record in caplog.records if "another file" in record.getMessage()]
    assert line.startswith(f"{file} is another file than when it was prepared (changed 2") and "modified" not in line
    caplog.clear()
    club(name="a longer name").save(file)
    features_of(cfg)
    assert all(word in caplog.text for word in ("another file", "size ", "modified ", "changed "))
    caplog.clear()
    features_of(cfg)
    assert "another file" not in caplog.text and "is read from" in caplog.text


def test_other_settings_and_other_files_are_not_called_changed(
    file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("fullgnn"), "propagate", True)
    caplog.set_level(logging.INFO)
    club().save(tmp_path / "other.npz")
    cache = f"runtime.cache_dir={tmp_path}/cache"
    for path, order in ((file, "none"), (file, "rcm"), (tmp_path / "other.npz", "none")):
        Preparation(config("dataset=npz", f"dataset.path={path}", cache, f"reorder={order}"), 1).here()
    Preparation(config("dataset=karate", cache), 1).here()
    assert "another file" not in caplog.text


def test_a_graph_of_a_file_is_not_kept_in_memory_or_in_the_cache_when_the_file_changes(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relatives of the prepared folder: what a process has loaded, and whole graphs in a cache."""
    node = dict(config("dataset=npz", f"dataset.path={file}", "dataset.name=mine").dataset)
    cache = Cache(str(tmp_path / "cache"))
    for scale in (1, 2):
        if scale == 2:
            rewrite(file, club(features=2 * np.eye(34, dtype=np.float32)))
        np.testing.assert_array_equal(source.loaded_dataset(node).features, scale * np.eye(34))
        np.testing.assert_array_equal(load_cached(node, cache).features, scale * np.eye(34))
    monkeypatch.setattr("fullgnn.graph.datasets.load_dataset", lambda node: pytest.fail("it is not in the cache"))
    load_cached(node, cache)


@pytest.fixture
def prepares(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Graph | None]:
    """``train_graph`` prepares its graph as a run does, and trains nothing; what has been loaded for it."""
    loaded: list[Graph | None] = []
    load = load_dataset
    monkeypatch.setattr(source, "load_dataset", lambda node: loaded.append(load(node)) or loaded[-1])

    def start(cfg: Config, overrides: list[str], *_: object) -> None:
        assert load_config(compose(*overrides)).dataset == cfg.dataset  # ranks that are started compose it
        Preparation(cfg, 2, to_train=True).here()

    monkeypatch.setattr(api, "start", start)
    monkeypatch.setattr(
        api, "run", lambda cfg: start(cfg, []) if not cfg else Preparation(cfg, 2, to_train=True).here()
    )
    return loaded


@pytest.mark.sample(2)
@pytest.mark.parametrize("torchrun", [False, True])
def test_train_graph_finds_an_equal_graph_in_the_cache(
    prepares: list, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, torchrun: bool
) -> None:
    if torchrun:
        for name in ("RANK", "LOCAL_RANK"):
            monkeypatch.setenv(name, "0")
        for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
            monkeypatch.setenv(name, "1")
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
        monkeypatch.setattr(api, "under_torchrun", lambda: True)
    cache, folder = {"runtime.cache_dir": str(tmp_path / "cache")}, tmp_path / "cache" / "prepared"
    mask = np.arange(34) == 33
    calls = [  # the graph, more settings, and how many folders there are afterwards
        (club(), {}, 1),
        (club(), {}, 1),
        (club(), {"model": "sage"}, 1),  # the model is no part of it
        (club(features=2 * np.eye(34, dtype=np.float32)), {}, 2),
        (club(train_mask=mask, val_mask=None, test_mask=None), {}, 3),
        (club(), {"reorder": "rcm"}, 4),
        (club(), {}, 4),
        (club(), {"dataset.normalize_features": True}, 5),
        (club(), {"dataset.normalize_features": True}, 5),
    ]
    for graph, settings, count in calls:
        before = len(list(folder.glob("*"))) if folder.exists() else 0
        num_loaded = len(prepares)
        api.train_graph(graph, cache, settings, run_dir=str(tmp_path / "run"))
        assert len(list(folder.glob("*"))) == count
        assert (len(prepares) > num_loaded) == (count > before)  # of a graph that is found, not even the file is read
    assert len(list((tmp_path / "cache" / "order").glob("*"))) < len(calls)


def test_another_file_in_the_place_of_the_temporary_one_is_known_by_itself(file: Path, tmp_path: Path) -> None:
    """As in a prediction with the checkpoint of ``train_graph`` and another ``dataset.path``."""
    given, other = f"{'0' * 64} {file}", tmp_path / "other.npz"
    club(features=2 * np.eye(34, dtype=np.float32)).save(other)
    keys = ["dataset=npz", f"dataset.contents={given}", f"runtime.cache_dir={tmp_path}/cache"]
    for _ in range(2):
        np.testing.assert_array_equal(features_of(config(*keys, f"dataset.path={file}")), np.eye(34))
        np.testing.assert_array_equal(features_of(config(*keys, f"dataset.path={other}")), 2 * np.eye(34))


def test_train_graph_without_a_cache_hashes_nothing(prepares: list, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "contents_of", lambda graph, cache_dir: pytest.fail("it is hashed"))
    api.train_graph(club())


def test_times_of_files_that_are_none_are_passed_over(file: Path, tmp_path: Path) -> None:
    cfg = config("dataset=npz", f"dataset.path={file}", f"runtime.cache_dir={tmp_path}/cache", "reorder=none")
    features_of(cfg)
    (kept,) = (tmp_path / "cache" / source.FILES).glob("*.npz")
    with np.load(kept) as arrays:
        names = {name: arrays[name] for name in arrays if name != "stats"}
    for stats in (np.array([["a", "b", "c"]]), np.full((1, 3), np.inf), np.zeros((2, 3), np.int64), None):
        np.savez(kept, **names, **({} if stats is None else {"stats": stats}))
        np.testing.assert_array_equal(features_of(cfg), np.eye(34))
