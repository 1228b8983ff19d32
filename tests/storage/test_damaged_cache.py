"""Damaged files of a cache: nothing is loaded from them, or the arrays that another reader finds."""

import io
from pathlib import Path

import numpy as np

from fullgnn.errors import DataError
from fullgnn.graph import Graph
from fullgnn.graph.datasets import load_cached
from fullgnn.prepare.arrange import check_order
from fullgnn.storage.cache import Cache
from tests.damage import assert_refused_or_right, damaged_npz, unpacked

NODE = {
    "_target_": "fullgnn.graph.datasets.karate.load",
    "name": "karate",
    "train_per_class": 4,
    "num_val": 8,
    "seed": 0,
}
KINDS = ("graph", "order")


def check(folder: Path, kind: str, key: str, content: bytes, seed: int) -> None:
    cache = Cache(str(folder))
    damage = damaged_npz(content, seed)
    (folder / kind / f"{key}.npz").write_bytes(damage)
    loaded = cache.load(kind, key, dict)
    if kind == "graph":  # a graph that cannot be one is loaded again
        assert load_cached(NODE, cache).num_nodes > 0
    if loaded is None:
        raise DataError("nothing is loaded")
    members = unpacked(damage)
    assert list(loaded) == [name.removesuffix(".npy") for name in members if name != "__names__.npy"]
    for name, array in loaded.items():
        stored = members[f"{name}.npy"]
        assert stored.endswith(array.tobytes("F" if b"'fortran_order': True" in stored else "C"))
        assert np.array_equal(np.load(io.BytesIO(stored), allow_pickle=False), array, equal_nan=array.dtype.kind == "f")
    if kind == "order":
        try:
            check_order(loaded, 34, 2)
        except (KeyError, ValueError):
            return
        assert sorted(loaded["perm"].tolist()) == list(range(34)) and sorted(loaded["bounds"].tolist())[::2] == [0, 34]


def test_a_damaged_file_of_a_cache_gives_nothing_or_what_it_holds(tmp_path: Path, every_case: bool) -> None:
    cache = Cache(str(tmp_path))
    assert isinstance(load_cached(NODE, cache), Graph)
    (key,) = (file.stem for file in (tmp_path / "graph").iterdir())
    rng = np.random.default_rng(0)
    cache.store("order", key, {"perm": rng.permutation(34), "bounds": np.array([0, 17, 34]), "num_blocks": np.array(2)})
    contents = {kind: (tmp_path / kind / f"{key}.npz").read_bytes() for kind in KINDS}
    cases = [
        (tmp_path, KINDS[seed % 2], key, contents[KINDS[seed % 2]], seed) for seed in range(300 if every_case else 10)
    ]
    assert_refused_or_right(check, cases)
