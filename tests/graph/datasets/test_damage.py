"""Damaged dataset files of every format: each is refused by one line, or read as another reader reads it.

The other readers here are written apart, in plain Python, value by value.
"""

import gzip
import pickletools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullgnn.graph import Graph, load_dataset
from fullgnn.graph.datasets import blogcatalog, interactions, npz, planetoid
from tests.damage import damaged, damaged_npz, damaged_text, unpacked
from tests.graph.datasets.damage import Expected, Files, assert_survives_damage, compare, npy_values, text_lines
from tests.graph.datasets.damage_texts import TEXT_FORMATS
from tests.graph.datasets.planetoid import ALLX, GRAPH, TEST_INDEX, TX, py2_array, py2_csr, py2_graph

# npz


def npz_files() -> Files:
    rng = np.random.default_rng(0)
    adj = np.where(rng.random((9, 9)) < 0.3, rng.standard_normal((9, 9)), 0).astype(np.float32)
    node = np.arange(9)
    graph = Graph.from_edge_index(
        np.stack(np.nonzero(adj)),
        edge_weight=adj[adj != 0],
        features=rng.standard_normal((9, 3)).astype(np.float32),
        labels=node % 3,
        train_mask=node < 4,
        val_mask=node == 5,
        test_mask=node > 6,
        name="kept",
    )
    folder = Path(npz_files.folder)  # type: ignore[attr-defined]
    graph.save(folder / "saved.npz")
    return {"graph.npz": (folder / "saved.npz").read_bytes()}


def npz_expected(files: Files) -> Expected:
    members = unpacked(files["graph.npz"])

    def get(name: str) -> tuple[tuple[int, ...], str, list[Any]]:
        return npy_values(members[name if name in members else f"{name}.npy"])

    data, indices, indptr = (get(f"adj_{part}")[2] for part in ("data", "indices", "indptr"))
    arcs: dict[tuple[int, int], float] = {}
    for source in range(get("adj_shape")[2][0]):
        for entry in range(indptr[source], indptr[source + 1]):
            arc = source, indices[entry]
            arcs[arc] = arcs.get(arc, 0) + data[entry]
    present = {name.removesuffix(".npy") for name in members}
    expected: Expected = {"arcs": arcs, "num_nodes": get("adj_shape")[2][0]}
    for field in {"train_mask", "val_mask", "test_mask"} & present:
        expected[field] = get(field)[2]
    if "attr_matrix" in present:
        expected["features"] = get("attr_matrix")[2]
    if "labels" in present:
        expected["labels"] = get("labels")[2]
        if not {"train_mask", "val_mask", "test_mask"} & present:
            expected.pop("train_mask", None)
    if "name" in present:
        expected["name"] = get("name")[2][0]
    return expected


def npz_load(folder: Path) -> Graph:
    return npz.load(None, "", str(folder / "graph.npz"), False, 0.6, 0.2, 0)


# npz with several splits, and the groups of its nodes


def splits_files() -> Files:
    npz_files()
    folder = Path(npz_files.folder)  # type: ignore[attr-defined]
    with np.load(folder / "saved.npz") as read:
        arrays = dict(read)
    for name in ("train_mask", "val_mask", "test_mask"):
        arrays[name] = np.stack([arrays[name][::-1], arrays[name]], axis=1).astype(np.uint8)
    np.savez(folder / "several.npz", **arrays)
    return {"graph.npz": (folder / "several.npz").read_bytes()}


def splits_expected(files: Files) -> Expected:
    expected = npz_expected(files)
    for name in ("train_mask", "val_mask", "test_mask"):
        if name in expected:
            expected[name] = expected[name][1::2]
    return expected


def splits_load(folder: Path) -> Graph:
    return npz.load(None, "", str(folder / "graph.npz"), False, None, None, 0, split=1)


def groups_files() -> Files:
    folder = Path(npz_files.folder)  # type: ignore[attr-defined]
    np.save(folder / "saved.npy", np.arange(9) // 2)
    return npz_files() | {"groups.npy": (folder / "saved.npy").read_bytes()}


def groups_load(folder: Path) -> Graph:
    node = {"_target_": "fullgnn.graph.datasets.npz.load", "name": None, "root": "", "normalize_features": False}
    node |= {"path": str(folder / "graph.npz"), "train_fraction": None, "val_fraction": None, "seed": 0}
    return load_dataset(node | {"split": "group", "groups": str(folder / "groups.npy")})


def groups_expected(files: Files) -> Expected:
    """Each node is in the part in which the first node of its group is."""
    expected = npz_expected(files)
    groups = npy_values(files["groups.npy"])[2]
    labels = expected.get("labels", [0] * len(groups))
    graph = Graph.from_edge_index(np.empty((2, 0), int), num_nodes=len(groups), labels=labels).split(
        "group", groups=groups
    )
    for name in ("train_mask", "val_mask", "test_mask"):
        mask = getattr(graph, name)
        assert all(mask[node] == mask[groups.index(groups[node])] for node in range(len(groups)))
        expected[name] = mask
    return expected


# Planetoid


def planetoid_files() -> Files:
    one_hot = np.eye(2, dtype=np.int32)
    parts = {"y": py2_array(one_hot[[0, 1]]), "ty": py2_array(one_hot[[1, 0, 1]])}
    parts |= {"tx": py2_csr(TX), "allx": py2_csr(ALLX), "ally": py2_array(one_hot[[0, 1, 0, 0]])}
    parts["graph"] = py2_graph(GRAPH)
    files = {f"ind.tiny.{part}": b"\x80\x02" + content + b"." for part, content in parts.items()}
    return files | {"ind.tiny.test.index": "".join(f"{index}\n" for index in TEST_INDEX).encode()}


class Called(list):
    """A name, what it was called with, and the state that it was given."""


def unpickled(content: bytes) -> Any:
    """A pickle of plain values and ``Called``, by the opcodes that pickletools finds."""
    stack: list[Any] = []
    memo: dict[Any, Any] = {}
    mark = object()

    def to_mark() -> list[Any]:
        place = next(number for number in range(len(stack) - 1, -1, -1) if stack[number] is mark)
        values = stack[place + 1 :]
        del stack[place:]
        return values

    for opcode, argument, _ in pickletools.genops(content):
        name = opcode.name
        if name == "STOP":
            assert mark not in stack
            return stack[-1]
        if name in ("PROTO", "FRAME"):
            continue
        if name == "MARK":
            stack.append(mark)
        elif name == "GLOBAL":
            stack.append(argument)
        elif name in ("REDUCE", "NEWOBJ"):
            arguments, called = stack.pop(), stack.pop()
            stack.append({} if "defaultdict" in called else Called([called, arguments, None]))
        elif name == "BUILD":
            state = stack.pop()
            stack[-1][2] = state
        elif name in ("BINPUT", "LONG_BINPUT", "PUT", "MEMOIZE"):
            memo[len(memo) if argument is None else int(argument)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(memo[int(argument)])
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            size = int(name[-1])
            stack[-size:] = [tuple(stack[-size:])]
        elif name == "TUPLE":
            stack.append(tuple(to_mark()))
        elif name == "LIST":
            stack.append(to_mark())
        elif name in ("SETITEMS", "DICT"):
            items = to_mark()
            target = {} if name == "DICT" else stack.pop()
            target.update(zip(items[::2], items[1::2]))
            stack.append(target)
        elif name == "SETITEM":
            value, key = stack.pop(), stack.pop()
            stack[-1][key] = value
        elif name in ("APPENDS", "APPEND"):
            values = to_mark() if name == "APPENDS" else [stack.pop()]
            stack[-1].extend(values)
        elif name == "POP":
            stack.pop()
        else:
            empty = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
            plain = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
            stack.append(empty[name]() if name in empty else plain[name] if name in plain else argument)
    raise AssertionError


def array_rows(value: Called, file: bytes) -> tuple[tuple[int, ...], list[Any]]:
    """The shape and the values of an array that numpy was to make."""
    assert value[0].endswith("_reconstruct")
    _, shape, (_, (text, *_), (_, order, *_)), fortran, values = value[2]
    values = values if isinstance(values, bytes) else values.encode("latin1")
    text = f"{order}{text}".replace("|", "<")
    header = str({"descr": text.replace("<b1", "|b1"), "fortran_order": bool(fortran), "shape": shape}).encode()
    return shape, npy_values(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + values)[2]


def csr_rows(content: bytes) -> list[list[float]]:
    state = unpickled(content)[2]
    data, indices, indptr = (array_rows(state[name], content)[1] for name in ("data", "indices", "indptr"))
    rows = [[0.0] * state["_shape"][1] for _ in range(state["_shape"][0])]
    for row in range(len(rows)):
        for entry in range(indptr[row], indptr[row + 1]):
            rows[row][indices[entry]] += data[entry]
    return rows


def planetoid_expected(files: Files) -> Expected:
    def rows(part: str) -> list[list[Any]]:
        (count, columns), values = array_rows(unpickled(files[f"ind.tiny.{part}"]), b"")
        return [values[row * columns : (row + 1) * columns] for row in range(count)]

    index = [int(word) for word in files["ind.tiny.test.index"].split()]
    features, test_features = (csr_rows(files[f"ind.tiny.{part}"]) for part in ("allx", "tx"))
    num_nodes, num_train = max(index) + 1, len(rows("y"))
    table = features + [[0.0] * len(features[0]) for _ in range(num_nodes - len(features))]
    one_hot = rows("ally") + [[0] * len(rows("ally")[0]) for _ in range(num_nodes - len(rows("ally")))]
    for place, feature, label in zip(index, test_features, rows("ty")):
        table[place], one_hot[place] = feature, label
    arcs = {(source, to): 1.0 for source, targets in unpickled(files["ind.tiny.graph"]).items() for to in targets}
    return {
        "arcs": arcs,
        "features": table,
        "labels": [row.index(max(row)) if any(row) else -1 for row in one_hot],
        "train_mask": [node < num_train for node in range(num_nodes)],
        "test_mask": [node in index for node in range(num_nodes)],
        "num_nodes": num_nodes,
    }


def planetoid_load(folder: Path) -> Graph:
    return planetoid.load("tiny", str(folder), False)


def damaged_pickle(content: bytes, seed: int) -> bytes:
    """A pickle with a damage drawn from ``seed``; some call what a pickle should not, or follow a wrong state."""
    rng = np.random.default_rng(seed)
    call = [b"cos\nsystem\n(S'true'\ntR.", b"cposix\nsystem\nU\x04true\x85R.", b"cbuiltins\nexec\n(S'1'\ntR."]
    state = [
        b"(J\x03\x00\x00\x00U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x3ftb",
        b"}b",
        b"Nb",
        b"N}U\x01aU\x01bs\x86b",
    ]
    parts = [
        lambda: rng.choice(call),
        lambda: content[:2] + rng.choice(call)[:-1] + content[2:],
        lambda: content.replace(b"f4", b"O8").replace(b"i4", b"O8"),
        lambda: content.replace(b"f4", b"V4").replace(b"i4", b"V4"),
        lambda: content.replace(b"numpy\nndarray", rng.choice([b"numpy\ndtype", b"collections\ndefaultdict"])),
        lambda: content.replace(b"_reconstruct", rng.choice([b"scalar", b"_frombuffer"])),
        lambda: content.replace(b"tb", rng.choice(state), 1),
        lambda: content[:2] + b"r\xff\xff\xff\x7f" + content[2:],
        lambda: content[:2] + b"Nr\xff\xff\xff\x7f0" + content[2:],
        lambda: content[:2] + b"(" * 50_000 + b"t" * 50_000 + b"0" + content[2:],
        lambda: content[:-1] + b"}" + b")" + b"\x85" * 50_000 + b"Ns.",
        lambda: content[:2] + b"\x8e" + b"\xff" * 7 + b"\x7f" + content[2:],
        lambda: content[:2] + b"T\xff\xff\xff\xff" + content[2:],
        lambda: content.replace(b"K\x00]", b"K\x01]", 1),
        lambda: content.replace(b"](J", b"](K", 1),
        lambda: (
            content[:2]
            + rng.choice([b"\x82\x01", b"Q", b"P1\n", b"i os\nsystem\n", b"o", b"\x92", b"\x97"])
            + content[2:]
        ),
    ]
    return damaged(content, seed) if seed % 2 else bytes(parts[seed // 2 % len(parts)]())


# Interactions


def lists_files() -> Files:
    lines = [" ".join(map(str, [user, *range(user % 4 + 1, 9, user % 3 + 1)])) for user in range(12)]
    return {"train.txt": "\n".join(lines).encode() + b"\n", "test.txt": b"0 0\n3 1 2\n5 0\n"}


def triples_files() -> Files:
    lines = [f"{user + 1}\t{item}\t{user * item}" for user in range(9) for item in range(user % 3 + 1, 8, 2)]
    return {"train.txt": "\n".join(lines).encode() + b"\n", "test.txt": b"1\t2\t9\n3\t4\t1\n"}


def bipartite(train: list[tuple[int, int]], test: list[tuple[int, int]], num_users: int, num_items: int) -> Expected:
    arcs = {(user, item + num_users): 1.0 for user, item in train}
    links = sorted(set(test) - set(train))
    expected: Expected = {"arcs": arcs | {(item, user): 1.0 for user, item in arcs}, "num_users": num_users}
    if links:
        expected["test_links"] = [[user for user, _ in links], [item + num_users for _, item in links]]
    return expected | {"num_nodes": num_users + num_items}


def lists_expected(files: Files, first: int = 0) -> Expected:
    pairs, users, items = {}, set(), set()
    for name, content in files.items():
        pairs[name] = []
        for line in text_lines(content):
            words = [int(word) for word in re.split("[ \t]+", line) if word]
            if words:
                users.add(words[0])
                items.update(words[1:])
                pairs[name] += [(words[0], item) for item in words[1:]]
    return bipartite(pairs["train.txt"], pairs["test.txt"], max(users) + 1, max(items) + 1)


def triples_expected(files: Files) -> Expected:
    pairs = {}
    for name, content in files.items():
        rows = [line.split("\t") for line in text_lines(content) if line.strip(" \t")]
        assert all(len(row) == 3 for row in rows)
        pairs[name] = [(int(row[0].strip(" ")) - 1, int(row[1].strip(" ")) - 1) for row in rows]
    together = pairs["train.txt"] + pairs["test.txt"]
    return bipartite(
        pairs["train.txt"], pairs["test.txt"], max(u for u, _ in together) + 1, max(i for _, i in together) + 1
    )


def lists_load(folder: Path) -> Graph:
    return interactions.load("l", "lists", str(folder / "train.txt"), str(folder / "test.txt"))


def triples_load(folder: Path) -> Graph:
    return interactions.load("t", "triples", str(folder / "train.txt"), str(folder / "test.txt"))


def gz_files() -> Files:
    return {name.replace(".txt", ".gz"): gzip.compress(content) for name, content in lists_files().items()}


def gz_expected(files: Files) -> Expected:
    return lists_expected({name.replace(".gz", ".txt"): gzip.decompress(content) for name, content in files.items()})


def gz_load(folder: Path) -> Graph:
    return interactions.load("g", "lists", str(folder / "train.gz"), str(folder / "test.gz"))


# BlogCatalog


def blogcatalog_files() -> Files:
    edges = "".join(f"{u},{v}\n" for u in range(1, 9) for v in range(u + 1, 9, 3))
    members = "".join(f"{node},{node % 3 + 1}\n" for node in range(1, 9))
    ids = {"nodes.csv": range(1, 9), "groups.csv": range(1, 4)}
    files = {name: "".join(f"{number}\n" for number in numbers).encode() for name, numbers in ids.items()}
    return files | {"edges.csv": edges.encode(), "group-edges.csv": members.encode()}


def blogcatalog_expected(files: Files) -> Expected:
    tables = {}
    for name, content in files.items():
        rows = [[int(word.strip(" \t")) for word in line.split(",")] for line in text_lines(content) if line]
        assert len({len(row) for row in rows}) == 1 and len(rows[0]) == (2 if "edges" in name else 1)
        tables[name] = rows
    num_nodes, num_groups = len(tables["nodes.csv"]), len(tables["groups.csv"])
    labels = [[0] * num_groups for _ in range(num_nodes)]
    for node, group in tables["group-edges.csv"]:
        labels[node - 1][group - 1] = 1
    arcs = {(u - 1, v - 1): 1.0 for u, v in tables["edges.csv"]}
    return {"arcs": arcs, "labels": labels, "num_nodes": num_nodes}


def blogcatalog_load(folder: Path) -> Graph:
    return blogcatalog.load("b", str(folder), 0.6, 0.2, 0)


Format = tuple[Callable[[], Files], Callable[[bytes, int], bytes], Callable[[Path], Graph], Callable[[Files], Expected]]
FORMATS: dict[str, Format] = {
    "npz": (npz_files, damaged_npz, npz_load, npz_expected),
    "npz with several splits": (splits_files, damaged_npz, splits_load, splits_expected),
    "groups": (groups_files, damaged_npz, groups_load, groups_expected),
    "planetoid": (planetoid_files, damaged_pickle, planetoid_load, planetoid_expected),
    "lists": (lists_files, damaged_text, lists_load, lists_expected),
    "triples": (triples_files, damaged_text, triples_load, triples_expected),
    "gz": (gz_files, damaged, gz_load, gz_expected),
    "blogcatalog": (blogcatalog_files, damaged_text, blogcatalog_load, blogcatalog_expected),
    **TEXT_FORMATS,
}


def check(name: str, folder: Path, files: Files, file: str | None, seed: int) -> None:
    """Damage one of the ``files``, and read them all."""
    _, damage, load, expect = FORMATS[name]
    if file is not None:
        of_text = damaged_text if file.endswith("index") else damaged if file.endswith("npy") else damage
        files = files | {file: of_text(files[file], seed)}
    for other, content in files.items():
        (folder / other).write_bytes(content)
    compare(load(folder), expect(files))


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", FORMATS)
def test_a_damaged_file_is_refused_or_read_right(name: str, tmp_path: Path, every_case: bool) -> None:
    npz_files.folder = tmp_path  # type: ignore[attr-defined]
    assert_survives_damage(check, name, tmp_path, FORMATS[name][0](), every_case)
