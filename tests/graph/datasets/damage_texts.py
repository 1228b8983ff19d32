"""Text formats for ``test_damage.py``: small files, and readers of what is left of them, value by value."""

import csv
import gzip
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.dom import minidom

import numpy as np

from fullgnn.graph import Graph
from fullgnn.graph.datasets import edge_list, graphml, linqs, matrix_market, metis_graph, musae, triples
from tests.damage import damaged, damaged_text

Files = dict[str, bytes]
Expected = dict[str, Any]


def integer(word: bytes) -> int:
    assert re.fullmatch(rb"[-+]?[0-9]+", word) and -(2**63) <= int(word[:4000]) < 2**63
    return int(word)


def number(word: bytes) -> float:
    assert re.fullmatch(rb"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?", word)
    assert np.isfinite(float(word))
    return float(word)


def word_rows(content: bytes, comments: bytes = b"", keeps_empty: bool = False) -> Iterator[list[bytes]]:
    """The words of each line, apart by blanks and tabs."""
    lines = re.split(rb"\r\n|\r|\n", content.removeprefix(b"\xef\xbb\xbf"))
    for line in lines[:-1] if not lines[-1].strip(b" \t") else lines:
        words = [word for word in re.split(rb"[ \t]+", line) if word]
        if words[:1] and words[0][:1] in [comments[at : at + 1] for at in range(len(comments))]:
            continue
        if words or keeps_empty:
            yield words


def added(arcs: list[tuple[int, int, float]]) -> dict[tuple[int, int], float]:
    """The weight of each arc, added."""
    weights: dict[tuple[int, int], float] = {}
    for source, target, weight in arcs:
        weights[source, target] = weights.get((source, target), 0) + weight
    return weights


def once(arcs: list[tuple[int, int]]) -> dict[tuple[int, int], float]:
    return dict.fromkeys(arcs, 1.0)


# LINQS


def linqs_files() -> Files:
    content = "".join(f"p{node}\t{node % 2}\t{node / 4}\t0\tc{node % 3}\n" for node in range(9))
    cites = "".join(f"p{u}\tp{v}\n" for u in range(9) for v in range(u + 1, 9, 3))
    return {"d.content": content.encode(), "d.cites": cites.encode()}


def linqs_expected(files: Files) -> Expected:
    papers = list(word_rows(files["d.content"]))
    assert len({len(row) for row in papers}) == 1 and len(papers[0]) > 1
    ids = [row[0].decode() for row in papers]
    assert len(set(ids)) == len(ids)
    classes = [row[-1].decode() for row in papers]
    names = sorted(set(classes), key=lambda name: name.encode())
    pairs = list(word_rows(files["d.cites"]))
    assert all(len(pair) == 2 for pair in pairs)
    arcs = [(citing.decode(), cited.decode()) for cited, citing in pairs]
    return {
        "arcs": once([(ids.index(u), ids.index(v)) for u, v in arcs if u in ids and v in ids]),
        "features": np.float32([[number(word) for word in row[1:-1]] for row in papers]).reshape(len(papers), -1),
        "labels": [names.index(name) for name in classes],
        "num_nodes": len(ids),
    }


def linqs_load(folder: Path) -> Graph:
    return linqs.load("d", str(folder), False)


# Edge lists


def edge_list_files() -> Files:
    lines = [f"{(7 * u) % 23}\t{v * v - 9}\t{u / 8}" for u in range(8) for v in range(4)]
    return {"edges.txt": ("# source target weight\n" + "\n".join(lines) + "\n").encode()}


def edge_list_expected(files: Files) -> Expected:
    rows = list(word_rows(files["edges.txt"], b"#%"))
    assert all(len(row) == 3 for row in rows) and rows
    arcs = [(integer(u), integer(v), number(w)) for u, v, w in rows]
    ids = sorted({id_ for u, v, _ in arcs for id_ in (u, v)})
    place = {id_: at for at, id_ in enumerate(ids)}
    return {"arcs": added([(place[u], place[v], w) for u, v, w in arcs]), "num_nodes": len(ids)}


def edge_list_load(folder: Path) -> Graph:
    return edge_list.load(None, str(folder / "edges.txt"), True)


# METIS


def metis_files() -> Files:
    rows = [[v for v in range(8) if v != u and (u * v) % 3 == 1] for u in range(8)]
    lines = [f"9 {' '.join(f'{v + 1} {u + v + 1}' for v in row)}" for u, row in enumerate(rows)]
    return {"g.graph": f"% c\n8 {sum(map(len, rows)) // 2} 011\n".encode() + "\n".join(lines).encode() + b"\n"}


def metis_expected(files: Files) -> Expected:
    header, *rows = word_rows(files["g.graph"], b"%", keeps_empty=True)
    num_nodes, num_edges = integer(header[0]), integer(header[1])
    fmt = (header[2] if len(header) > 2 else b"").rjust(3, b"0")
    assert len(fmt) == 3 and not fmt.strip(b"01")
    ncon = integer(header[3]) if len(header) == 4 else int(fmt[1:2])
    assert len(header) <= 4 and (ncon > 0) == (fmt[1:2] == b"1")
    skipped = ncon + int(fmt[:1])
    assert not any(rows[num_nodes:])
    rows = [*rows, []][:num_nodes]
    assert len(rows) == num_nodes
    arcs: list[tuple[int, int, float]] = []
    for node, row in enumerate(rows):
        assert len(row) >= skipped
        rest = row[skipped:]
        if fmt.endswith(b"1"):
            assert len(rest) % 2 == 0
            weights = [number(word) for word in rest[1::2]]
            rest = rest[::2]
        else:
            weights = [1.0] * len(rest)
        arcs += [(integer(word) - 1, node, weight) for word, weight in zip(rest, weights)]
    assert len(arcs) == 2 * num_edges and all(0 <= source < num_nodes for source, _, _ in arcs)
    stored = added(arcs) if fmt.endswith(b"1") else once([arc[:2] for arc in arcs])
    assert all(stored.get((v, u)) == weight for (u, v), weight in stored.items())
    return {"arcs": stored, "num_nodes": num_nodes}


def metis_load(folder: Path) -> Graph:
    return metis_graph.load(None, str(folder / "g.graph"))


# Matrix Market


def market_files() -> Files:
    entries = [f"{u + 1} {v + 1} {u - v / 4}" for u in range(9) for v in range(0, u + 1, 2)]
    header = f"%%MatrixMarket matrix coordinate real symmetric\n% c\n9 9 {len(entries)}\n"
    return {"m.mtx": (header + "\n".join(entries) + "\n").encode()}


def market_expected(files: Files) -> Expected:
    banner, *rows = word_rows(files["m.mtx"])
    kind, layout, field, symmetry = [word.lower() for word in banner[1:]]
    assert (banner[0].lower(), kind, layout) == (b"%%matrixmarket", b"matrix", b"coordinate")
    assert field in (b"real", b"integer", b"pattern", b"double") and symmetry in (b"general", b"symmetric")
    while rows[0][0].startswith(b"%"):
        del rows[0]
    size, columns, count = map(integer, rows[0])
    assert size == columns > 0 and len(rows) == count + 1
    arcs: list[tuple[int, int, float]] = []
    for row in rows[1:]:
        u, v = integer(row[0]) - 1, integer(row[1]) - 1
        assert len(row) == (2 if field == b"pattern" else 3) and 0 <= u < size and 0 <= v < size
        weight = 1.0 if field == b"pattern" else number(row[2])
        arcs.append((u, v, weight))
        if symmetry == b"symmetric" and u != v:
            assert u > v
            arcs.append((v, u, weight))
    return {"arcs": added(arcs), "num_nodes": size}


def market_load(folder: Path) -> Graph:
    return matrix_market.load(None, str(folder / "m.mtx"), False)


# Triples


def triples_files() -> Files:
    lines = [f"n{u}\tn {v}\t{(u + v) / 8}" for u in range(6) for v in range(0, 6, 2)]
    return {"t.abc": ("from\tto\tweight\n" + "\n".join(lines) + "\n").encode()}


def triples_expected(files: Files) -> Expected:
    lines = [line for line in re.split(rb"\r\n|\r|\n", files["t.abc"]) if line.strip(b" \t")]
    if b"\t" in lines[0].strip(b" \t"):
        rows = [[word.strip(b" \t") for word in line.split(b"\t")] for line in lines]
    else:
        rows = list(word_rows(files["t.abc"]))
    try:
        assert len(rows[0]) != 3 or number(rows[0][2]) < np.inf
    except AssertionError:
        assert not re.fullmatch(rb"[-+]?(nan|inf|infinity)", rows[0][2].lower())
        del rows[0]
    assert rows and len({len(row) for row in rows}) == 1 and len(rows[0]) in (2, 3)
    assert all(word for row in rows for word in row)
    names = list(dict.fromkeys(word.decode() for row in rows for word in row[:2]))
    arcs = [(names.index(row[0].decode()), names.index(row[1].decode())) for row in rows]
    if len(rows[0]) == 2:
        return {"arcs": once(arcs), "num_nodes": len(names)}
    weighted = [(u, v, number(row[2])) for (u, v), row in zip(arcs, rows)]
    return {"arcs": added(weighted), "num_nodes": len(names)}


def triples_load(folder: Path) -> Graph:
    return triples.load(None, str(folder / "t.abc"), None)


def gz_files() -> Files:
    return {"t.abc.gz": gzip.compress(triples_files()["t.abc"])}


def gz_expected(files: Files) -> Expected:
    return triples_expected({"t.abc": gzip.decompress(files["t.abc.gz"])})


def gz_load(folder: Path) -> Graph:
    return triples.load(None, str(folder / "t.abc.gz"), None)


# MUSAE


def musae_files() -> Files:
    edges = "id_1,id_2\n" + "".join(f"{u},{v}\n" for u in range(8) for v in range(u, 8, 3))
    target = "id,name,ml_target\n" + "".join(f'{u},"a, {u}",{u % 3}\n' for u in range(8))
    features = json.dumps({str(u): [u % 5, 3] for u in range(8)})
    return {"d_edges.csv": edges.encode(), "d_target.csv": target.encode(), "d_features.json": features.encode()}


def musae_expected(files: Files) -> Expected:
    def table(name: str) -> list[list[str]]:
        text = files[name].removeprefix(b"\xef\xbb\xbf").decode()
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
        assert len({len(row) for row in rows}) == 1 and len(rows) > 1
        return rows

    header, *nodes = table("d_target.csv")
    assert len(set(header)) == len(header)
    ids = [row[header.index("id")] for row in nodes]
    assert len(set(ids)) == len(ids)
    if all(re.fullmatch("0|-?[1-9][0-9]*", id_) and -(2**63) <= int(id_[:99]) < 2**63 for id_ in ids):
        nodes.sort(key=lambda row: int(row[header.index("id")]))
        ids = [row[header.index("id")] for row in nodes]
    labels = [row[header.index("ml_target")] for row in nodes]
    names = sorted(set(labels) - {""}, key=lambda name: name.encode())
    if all(re.fullmatch("0|-?[1-9][0-9]*", name) and -(2**63) <= int(name[:99]) < 2**63 for name in names):
        names.sort(key=int)
    _, *pairs = table("d_edges.csv")
    assert all(len(pair) == 2 for pair in pairs)
    lists = json.loads(files["d_features.json"])
    width = max([feature for own in lists.values() for feature in own], default=-1) + 1
    features = np.zeros((len(ids), width))
    for id_, own in lists.items():
        for feature in own:
            assert type(feature) is int and feature >= 0
            features[ids.index(id_), feature] = 1
    return {
        "arcs": once([(ids.index(u), ids.index(v)) for u, v in pairs]),
        "features": features,
        "labels": [names.index(label) if label else -1 for label in labels],
        "num_nodes": len(ids),
    }


def musae_load(folder: Path) -> Graph:
    return musae.load("d", str(folder), None, False, False)


# GraphML


def graphml_files() -> Files:
    nodes = "".join(f'<node id="n{u}">\n<data key="k">{u / 2}</data></node>\n' for u in range(6))
    edges = "".join(f'<edge source="n{u}" target="n{(u * 2) % 6}"/>\n' for u in range(6))
    key = '<key id="k" for="node" attr.name="f" attr.type="double"/>\n'
    text = (
        f'<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n{key}<graph edgedefault="directed">\n{nodes}{edges}'
    )
    return {"g.graphml": f"{text}</graph>\n</graphml>\n".encode()}


def graphml_expected(files: Files) -> Expected:
    document = minidom.parseString(files["g.graphml"])
    (graph,) = document.getElementsByTagName("graph")
    nodes = document.getElementsByTagName("node")
    ids = list(dict.fromkeys(node.getAttribute("id") for node in nodes))
    edges = [
        (edge.getAttribute("source"), edge.getAttribute("target")) for edge in document.getElementsByTagName("edge")
    ]
    ids += [id_ for id_ in dict.fromkeys(end for edge in edges for end in edge) if id_ not in ids]
    arcs = [(ids.index(u), ids.index(v)) for u, v in edges]
    arcs += [(v, u) for u, v in arcs if graph.getAttribute("edgedefault") == "undirected"]
    features = {}
    for node in nodes:
        for data in node.getElementsByTagName("data"):
            text = "".join(child.data for child in data.childNodes)
            features[node.getAttribute("id")] = float(text)
    return {"arcs": once(arcs), "features": np.float32([features[id_] for id_ in ids]), "num_nodes": len(ids)}


def graphml_load(folder: Path) -> Graph:
    return graphml.load(None, str(folder / "g.graphml"), None, "f", None, None)


TEXT_FORMATS: dict[str, tuple] = {
    "linqs": (linqs_files, damaged_text, linqs_load, linqs_expected),
    "edge_list": (edge_list_files, damaged_text, edge_list_load, edge_list_expected),
    "metis_graph": (metis_files, damaged_text, metis_load, metis_expected),
    "matrix_market": (market_files, damaged_text, market_load, market_expected),
    "abc": (triples_files, damaged_text, triples_load, triples_expected),
    "abc_gz": (gz_files, damaged, gz_load, gz_expected),
    "musae": (musae_files, damaged_text, musae_load, musae_expected),
    "graphml": (graphml_files, damaged_text, graphml_load, graphml_expected),
}
