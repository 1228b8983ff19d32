"""Graphs in GraphML, read by networkx: attributes of nodes are labels, features and a split, those of edges weights.

Format: Brandes et al., "GraphML progress report" (2002), graphml.graphdrawing.org; networkx, igraph, Gephi, yEd and
Neo4j write it. An edge of a directed graph is the arc source -> target, so that the target reads from the source; an
undirected edge is stored in both directions. Parallel edges merge. Nodes are numbered as in the file, and
``Graph.node_names`` keeps their ids unless they are 0, 1, 2, .... XML can define entities, whose text may be of any
size or come from anywhere: a file with a document type, the only place where it can do so, is refused.
"""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any
from xml.parsers import expat

import networkx
import numpy as np

from fullgnn.errors import ConfigError, DataError, quoted
from fullgnn.graph.checks import first_line, naming, reading
from fullgnn.graph.datasets.given_files import existing_file
from fullgnn.graph.datasets.named import class_fields, node_names_of
from fullgnn.graph.datasets.words import read_text
from fullgnn.graph.graph import Graph
from fullgnn.graph.masks import MASKS, PART_OF_WORD
from fullgnn.telemetry.machine import check_fits


def files(path: str) -> list[Path]:
    """The one file of ``load``.

    Raises:
        DataError: it is missing.
    """
    return [existing_file(path, "path", "a file in GraphML")]


def lacks(label: str | None, split_attribute: str | None) -> list[str]:
    """The fields for which no attribute is named, ``labels``, ``train_mask`` or both."""
    return [what for what, key in (("labels", label), ("train_mask", split_attribute)) if key is None]


def load(
    name: str | None,
    path: str,
    label: str | None,
    features: str | Sequence[str] | None,
    weight: str | None,
    split_attribute: str | None,
) -> Graph:
    """The graph in the file ``path``, plain or, with the suffix .gz, compressed.

    Args:
        label: the attribute of the nodes with the label: texts, integers and booleans are classes by name, numbers with
            a fraction are values. A node without it has no label.
        features: the attributes of the nodes with the features, in this order; ``*`` and ``?`` stand for any
            characters, and commas are between names. Features are float32.
        weight: the attribute of the edges with the weight.
        split_attribute: the attribute of the nodes with the split: ``train``, ``val`` or ``test``. A node without it
            is in no mask.

    Raises:
        ConfigError: no node has an attribute that is named here.
        DataError: the file is missing or has wrong contents; the message names it.
    """
    import pyarrow

    (file,) = files(path)
    g = _read(file)
    nodes = _Attributes(file, g)
    fields: dict[str, Any] = {}
    if label is not None:
        fields |= _labels(nodes.column(label, "label"))
    if features is not None:
        fields["features"] = _features(nodes, features)
    if split_attribute is not None:
        fields |= _masks(file, nodes.column(split_attribute, "split_attribute"))
    names = node_names_of(pyarrow.array(nodes.nodes, pyarrow.large_string()))
    with naming(file):
        graph = Graph.from_networkx(
            g,
            weight=None if weight is None else _weighted(file, g, weight),
            node_names=names,
            name=name or file.name.removesuffix(".gz").removesuffix(".graphml"),
            **fields,
        )
    return replace(graph, node_names=names)  # texts that count from 0 are no names


class _Attributes:
    """The attributes of the nodes, with the defaults that the file declares."""

    def __init__(self, file: Path, g: networkx.Graph) -> None:
        self.file = file
        self.nodes = list(g.nodes)
        self.rows = [row for _, row in g.nodes(data=True)]
        self.defaults = dict(g.graph.get("node_default", {}))
        self.names = list(dict.fromkeys(chain(self.defaults, *self.rows)))

    def column(self, name: str, key: str) -> list[Any]:
        """The values of the attribute ``name``, None where a node lacks it.

        Args:
            key: the key of the dataset that names it.
        """
        if name not in self.names:
            known = quoted(", ".join(map(str, self.names))) or "none"
            raise ConfigError(
                f"dataset.{key}={name}: no node of {self.file} has this attribute, only {known}: choose one of them"
            )
        default = self.defaults.get(name)
        return [row.get(name, default) for row in self.rows]


def _read(file: Path) -> networkx.Graph:
    """What networkx makes of the file."""
    content = read_text(file).tobytes()
    cure = "write it again, as GraphML"
    _check_start(file, content, cure)
    kinds = ArithmeticError, AttributeError, LookupError, SyntaxError, TypeError, ValueError
    try:
        with reading(file, cure, *kinds), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that an attribute without a type is a text
            g = networkx.read_graphml(BytesIO(content))
    except RecursionError as error:
        raise DataError(f"{file} has elements within elements without end: {cure}") from error
    except networkx.NetworkXException as error:
        raise DataError(f"{file} cannot be read by networkx ({quoted(first_line(error))}): {cure}") from error
    if not g.number_of_nodes():
        raise DataError(f"{file} has no node: {cure}")
    return g


def _check_start(file: Path, content: bytes, cure: str) -> None:
    """Refuse a document type, which stands before the first element, and a graph that says not whether it is directed.

    networkx would take such a graph for an undirected one.
    """

    class Found(Exception):
        pass

    def begin(tag: str, attributes: dict[str, str]) -> None:
        if tag.rpartition(" ")[2] == "graph":
            if attributes.get("edgedefault") not in ("directed", "undirected"):
                raise DataError(f"{file} has a graph without edgedefault: write directed or undirected there")
            raise Found

    def declare(*_: Any) -> None:
        raise DataError(
            f"{file} has a document type (<!DOCTYPE>), whose entities may be of any size: delete it, since GraphML"
            " needs none"
        )

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler, parser.StartDoctypeDeclHandler = begin, declare
    try:
        parser.Parse(content, True)
    except Found:
        return
    except (expat.ExpatError, LookupError, ValueError) as error:
        raise DataError(f"{file} is no XML ({quoted(first_line(error))}): {cure}") from error


def _labels(values: list[Any]) -> dict[str, Any]:
    """Labels and names of classes, as arguments of a ``Graph``."""
    import pyarrow

    if any(isinstance(value, float) for value in values) and not any(isinstance(value, str) for value in values):
        return {"labels": np.array([np.nan if value is None else value for value in values], np.float64)}
    texts = [None if value is None else str(value) for value in values]
    return class_fields(pyarrow.array(texts, pyarrow.large_string()))


def _features(nodes: _Attributes, wanted: str | Sequence[str]) -> np.ndarray:
    """(num_nodes, F) float32."""
    patterns = [part.strip() for part in (wanted.split(",") if isinstance(wanted, str) else wanted)]
    names: list[str] = []
    for pattern in patterns:
        matches = [name for name in nodes.names if fnmatchcase(str(name), pattern)]
        names += [name for name in matches or [pattern] if name not in names]
    check_fits(4 * len(nodes.nodes) * len(names), f"{nodes.file}: {len(names)} features", "choose fewer of them")
    features = np.empty((len(nodes.nodes), len(names)), np.float32)
    for place, name in enumerate(names):
        values = nodes.column(name, "features")
        odd = next((row for row, value in enumerate(values) if not isinstance(value, (int, float))), None)
        if odd is not None:
            node, value = quoted(nodes.nodes[odd]), quoted(values[odd])
            what = "lacks the attribute" if values[odd] is None else f"has the text {value!r} in the attribute"
            raise DataError(f"{nodes.file}: node {node} {what} {name}, and features are numbers: set it on every node")
        features[:, place] = values
    return features


def _masks(file: Path, values: list[Any]) -> dict[str, np.ndarray]:
    """The masks of a split by its words."""
    words = [None if value is None else str(value).strip().lower() for value in values]
    odd = sorted(set(words) - PART_OF_WORD.keys() - {None, "", "none"}, key=str)
    if odd:
        raise DataError(f"{file} has the part {quoted(odd[0])!r} of a split: name the parts train, val and test")
    parts = np.array([PART_OF_WORD.get(word or "", -1) for word in words])
    return {mask: parts == part for part, mask in enumerate(MASKS)}


def _weighted(file: Path, g: networkx.Graph, weight: str) -> str:
    """``weight``, which all edges then have as a number, with the default that the file declares."""
    default = g.graph.get("edge_default", {}).get(weight)
    for source, target, row in g.edges(data=True):
        value = row.setdefault(weight, default)
        if not isinstance(value, (int, float)):
            what = "no attribute" if value is None else f"the text {quoted(value)!r} in the attribute"
            edge = f"the edge of {quoted(source)} and {quoted(target)}"
            raise DataError(f"{file}: {edge} has {what} {weight}, and weights are numbers: set it on every edge")
    return weight
