"""Damaged files of OGB, of DGL's Reddit, of GraphSAINT and of Platonov et al.: refused by one line, or read right.

The other readers here are written apart, in plain Python, value by value, as in ``test_damage.py``.
"""

import gzip
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv  # noqa: F401  # here once, and not in each child
import pytest
import torch

from fullgnn.graph import Graph
from fullgnn.graph.datasets import graphsaint, heterophilous, ogb, reddit
from tests.damage import damaged, damaged_npy, damaged_npz, damaged_text, unpacked
from tests.graph.datasets.damage import (
    Expected,
    Files,
    assert_survives_damage,
    compare,
    npy_values,
    text_lines,
)

RNG = np.random.default_rng(0)
NUM_NODES = 9
EDGES = RNG.integers(0, NUM_NODES, (20, 2))
FEATURES = RNG.integers(-9, 9, (NUM_NODES, 3)) / 4
CLASSES = np.arange(NUM_NODES) % 3
PARTS = {"train": [0, 1, 2, 3], "valid": [4], "test": [6, 5]}
NODES = {name: np.isin(np.arange(NUM_NODES), PARTS[name]) for name in PARTS}
MASKS = {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}


def saved(save: Callable[..., None], *arrays: Any, **named: Any) -> bytes:
    file = io.BytesIO()
    save(file, *arrays, **named)
    return file.getvalue()


def members(content: bytes) -> Callable[[str], list[Any]]:
    """The values of an array by its name, in C order."""
    arrays = unpacked(content)
    return lambda name: npy_values(arrays[f"{name}.npy" if f"{name}.npy" in arrays else name])[2]


def masks(parts: dict[str, list[int]], labels: list[Any], columns: int = 1) -> Expected:
    """The masks of nodes that have a label."""
    rows = [labels[columns * node : columns * (node + 1)] for node in range(len(labels) // columns)]
    known = {node for node, row in enumerate(rows) if any(label == label and label >= 0 for label in row)}
    chosen = {part: known.intersection(nodes) for part, nodes in parts.items()}
    return {MASKS[part]: [node in chosen[part] for node in range(len(rows))] for part in parts}


# Platonov et al.


def heterophilous_files() -> Files:
    several = {f"{part}_masks": np.stack([NODES[name]] * 2) for part, name in zip(("train", "val", "test"), PARTS)}
    arrays = dict(node_features=FEATURES, node_labels=CLASSES, edges=EDGES, **several)
    return {"tiny.npz": saved(np.savez, **arrays)}


def heterophilous_load(folder: Path) -> Graph:
    return heterophilous.load("tiny", "", str(folder / "tiny.npz"), None, 1)


def heterophilous_expected(files: Files) -> Expected:
    get = members(files["tiny.npz"])
    ends, labels = get("edges"), get("node_labels")
    arcs = {(u, v): 1.0 for u, v in zip(ends[::2], ends[1::2])}
    arcs |= {(v, u): 1.0 for u, v in arcs}
    expected: Expected = {"arcs": arcs, "features": get("node_features"), "labels": labels, "num_nodes": len(labels)}
    for mask in MASKS.values():
        expected[mask] = get(f"{mask}s")[len(labels) : 2 * len(labels)]
    return expected


# Reddit of DGL


def reddit_files() -> Files:
    types = sum((number * NODES[name] for number, name in enumerate(PARTS, 1)), np.zeros(NUM_NODES, int))
    ends = {"row": EDGES[:, 0].astype(np.int32), "col": EDGES[:, 1].astype(np.int32), "data": np.ones(len(EDGES))}
    adj = saved(np.savez_compressed, **ends, shape=np.array([NUM_NODES] * 2), format=np.array("coo"))
    data = saved(np.savez, feature=FEATURES, label=CLASSES, node_types=types)
    return {"reddit_data.npz": data, "reddit_graph.npz": adj}


def reddit_load(folder: Path) -> Graph:
    return reddit.load("reddit", str(folder))


def reddit_expected(files: Files) -> Expected:
    data, adj = members(files["reddit_data.npz"]), members(files["reddit_graph.npz"])
    labels, types = data("label"), data("node_types")
    parts = {part: [node for node, kind in enumerate(types) if kind == number] for number, part in enumerate(MASKS, 1)}
    expected: Expected = {"arcs": {arc: 1.0 for arc in zip(adj("row"), adj("col"))}, "num_nodes": adj("shape")[0]}
    return expected | {"features": data("feature"), "labels": labels} | masks(parts, labels)


# GraphSAINT


def graphsaint_files(class_map: dict[str, Any]) -> Files:
    arcs = np.unique(EDGES, axis=0)
    indptr = np.searchsorted(arcs[:, 0], np.arange(NUM_NODES + 1))
    arrays = dict(data=np.ones(len(arcs), bool), indices=arcs[:, 1], indptr=indptr, shape=np.array([NUM_NODES] * 2))
    role = {key: PARTS[name] for key, name in zip(("tr", "va", "te"), PARTS)}
    texts = {"role.json": json.dumps(role).encode(), "class_map.json": json.dumps(class_map).encode()}
    return texts | {"adj_full.npz": saved(np.savez, **arrays), "feats.npy": saved(np.save, FEATURES)}


def flickr_files() -> Files:
    return graphsaint_files({str(node): int(CLASSES[node]) for node in range(1, NUM_NODES)})


def yelp_files() -> Files:
    return graphsaint_files({str(node): [node % 2, int(node > 4)] for node in range(NUM_NODES)})


def graphsaint_load(folder: Path) -> Graph:
    return graphsaint.load("saint", str(folder))


def graphsaint_expected(files: Files) -> Expected:
    adj, role = members(files["adj_full.npz"]), json.loads(files["role.json"])
    class_map = {int(key): value for key, value in json.loads(files["class_map.json"]).items()}
    num_nodes, indptr, indices = adj("shape")[0], adj("indptr"), adj("indices")
    arcs = {(u, indices[entry]): 1.0 for u in range(num_nodes) for entry in range(indptr[u], indptr[u + 1])}
    rows = {node: value if isinstance(value, list) else [value] for node, value in class_map.items()}
    columns = max(len(row) for row in rows.values())
    labels = [label for node in range(num_nodes) for label in rows.get(node, [-1] * columns)]
    parts = {part: role[key] for part, key in zip(MASKS, ("tr", "va", "te"))}
    expected: Expected = {"arcs": arcs, "num_nodes": num_nodes, "features": npy_values(files["feats.npy"])[2]}
    return expected | {"labels": labels} | masks(parts, labels, columns)


# OGB


def gz(rows: Any) -> bytes:
    return gzip.compress("".join(",".join(map(repr, row)) + "\n" for row in np.asarray(rows).tolist()).encode())


def split_files() -> Files:
    return {f"split/time/{part}.csv.gz": gz(np.reshape(nodes, (-1, 1))) for part, nodes in PARTS.items()}


def text_files() -> Files:
    rows = {"num-node-list": [[NUM_NODES]], "num-edge-list": [[len(EDGES)]], "edge": EDGES, "node-feat": FEATURES}
    rows["node-label"] = CLASSES[:, None]
    return {f"raw/{name}.csv.gz": gz(value) for name, value in rows.items()} | split_files()


def binary_files() -> Files:
    arrays = dict(edge_index=EDGES.T, num_nodes_list=np.array([NUM_NODES]), num_edges_list=np.array([len(EDGES)]))
    labels = np.where(np.arange(NUM_NODES)[:, None] == 4, np.nan, CLASSES[:, None]).astype(np.float32)
    data = saved(np.savez_compressed, **arrays, node_feat=FEATURES.astype(np.float32))
    label = saved(np.savez_compressed, node_label=labels)  # of arrays that are mapped, no checksum is compared
    return {"raw/data.npz": data, "raw/node-label.npz": label} | split_files()


def split_dict_files(of_kind: bool, tensors: bool) -> Files:
    arrays = {part: torch.tensor(nodes) if tensors else np.array(nodes) for part, nodes in PARTS.items()}
    content = {part: {"paper": nodes} for part, nodes in arrays.items()} if of_kind else arrays
    return {"split/time/split_dict.pt": saved(lambda file: torch.save(content, file))}


def kinds_files() -> Files:
    """Papers, each with the one field that another relation gives it."""
    cites, topic = "raw/relations/paper___cites___paper", "raw/relations/paper___topic___field"
    rows = {f"{cites}/edge": EDGES, f"{cites}/num-edge-list": [[len(EDGES)]], f"{topic}/num-edge-list": [[NUM_NODES]]}
    rows |= {"raw/node-feat/paper/node-feat": FEATURES, "raw/node-label/paper/node-label": CLASSES[:, None]}
    rows |= {f"split/time/paper/{part}": np.reshape(nodes, (-1, 1)) for part, nodes in PARTS.items()}
    texts = {
        "triplet-type-list": "paper,cites,paper\npaper,topic,field\n",
        "num-node-dict": f"field,paper\n7,{NUM_NODES}\n",
    }
    texts["nodetype-has-label"] = "field,paper\nFalse,True\n"
    packed = {f"raw/{name}.csv.gz": gzip.compress(text.encode()) for name, text in texts.items()}
    return packed | {f"{name}.csv.gz": gz(value) for name, value in rows.items()}


def with_split_dict(files: Files, of_kind: bool, tensors: bool) -> Files:
    without = {name: content for name, content in files.items() if not name.startswith("split")}
    return without | split_dict_files(of_kind, tensors)


def ogb_load(folder: Path) -> Graph:
    return ogb.load("tiny-set", str(folder), None, False, None, None, False)


def fields(content: bytes) -> list[list[str]]:
    lines = text_lines(gzip.decompress(content))
    return [[word.strip(" \t") for word in line.split(",")] for line in lines if line]


def integer(word: str) -> int:
    return int(word, 16 if word[:2].lower() == "0x" else 10)


def split_expected(files: Files, labels: list[Any], inside: str = "") -> Expected:
    if "split/time/split_dict.pt" in files:  # whose checksums refuse every other content
        return masks(PARTS, labels)
    parts = {part: [integer(row[0]) for row in fields(files[f"split/time/{inside}{part}.csv.gz"])] for part in MASKS}
    return masks(parts, labels)


def text_expected(files: Files) -> Expected:
    return graph_expected(files, "raw", "raw", "raw", "")


def kinds_expected(files: Files) -> Expected:
    folders = "relations/paper___cites___paper", "node-feat/paper", "node-label/paper"
    return graph_expected(files, *(f"raw/{folder}" for folder in folders), "paper/")


def graph_expected(files: Files, edges: str, features: str, classes: str, split: str) -> Expected:
    ends = fields(files[f"{edges}/edge.csv.gz"])
    labels = [float(word or "nan") for row in fields(files[f"{classes}/node-label.csv.gz"]) for word in row]
    known = [int(label) if label == label else -1 for label in labels]
    expected: Expected = {"arcs": {(integer(u), integer(v)): 1.0 for u, v in ends}, "labels": known}
    table = fields(files[f"{features}/node-feat.csv.gz"])
    expected |= {"features": [float(word) for row in table for word in row], "num_nodes": len(labels)}
    return expected | split_expected(files, labels, split)


def binary_expected(files: Files) -> Expected:
    data, labels = members(files["raw/data.npz"]), members(files["raw/node-label.npz"])("node_label")
    ends, num_edges = data("edge_index"), data("num_edges_list")[0]
    known = [int(label) if label == label else -1 for label in labels]
    expected: Expected = {"arcs": {arc: 1.0 for arc in zip(ends[:num_edges], ends[num_edges:])}, "labels": known}
    if "node_feat.npy" in unpacked(files["raw/data.npz"]):
        expected["features"] = data("node_feat")
    return expected | {"num_nodes": data("num_nodes_list")[0]} | split_expected(files, labels)


def damaged_gz(content: bytes, seed: int) -> bytes:
    """A packed text with a damage, or damage to what is packed."""
    if random.Random(seed).random() < 0.3:
        return damaged(content, seed)
    return gzip.compress(damaged_text(gzip.decompress(content), seed))


def damaged_array(content: bytes, seed: int) -> bytes:
    return damaged(content, seed) if seed % 2 else damaged_npy(content, seed)


DAMAGES = {".npz": damaged_npz, ".npy": damaged_array, ".gz": damaged_gz, ".json": damaged_text, ".pt": damaged}
FORMATS: dict[str, tuple[Callable[[], Files], Callable[[Path], Graph], Callable[[Files], Expected], str]] = {
    "heterophilous": (heterophilous_files, heterophilous_load, heterophilous_expected, ""),
    "reddit": (reddit_files, reddit_load, reddit_expected, ""),
    "flickr": (flickr_files, graphsaint_load, graphsaint_expected, ""),
    "yelp": (yelp_files, graphsaint_load, graphsaint_expected, ""),
    "ogb text": (text_files, ogb_load, text_expected, "tiny_set"),
    "ogb binary": (binary_files, ogb_load, binary_expected, "tiny_set"),
    "ogb of several kinds": (kinds_files, ogb_load, kinds_expected, "tiny_set"),
    "ogb with arrays": (lambda: with_split_dict(text_files(), False, False), ogb_load, text_expected, "tiny_set"),
    "ogb with tensors of a kind": (
        lambda: with_split_dict(kinds_files(), True, True),
        ogb_load,
        kinds_expected,
        "tiny_set",
    ),
}


def check(name: str, folder: Path, files: Files, file: str | None, seed: int) -> None:
    """Damage one of the ``files``, and read them all."""
    _, load, expect, inside = FORMATS[name]
    if file is not None:
        files = files | {file: DAMAGES[Path(file).suffix](files[file], seed)}
    for other, content in files.items():
        path = folder / inside / other
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    compare(load(folder), expect(files))


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", FORMATS)
def test_a_damaged_file_is_refused_or_read_right(name: str, tmp_path: Path, every_case: bool) -> None:
    assert_survives_damage(check, name, tmp_path, FORMATS[name][0](), every_case)
