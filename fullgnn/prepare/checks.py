"""Check a prepared graph that was read from a folder: its facts against each other, and each array against the facts.

The loops over nodes and edges, which are compiled, trust what these checks let pass: an index beyond the last node
would read memory that is not theirs.
"""

from collections.abc import Iterable

import numpy as np

from fullgnn.errors import DataError, quoted
from fullgnn.graph.sparse_features import PARTS
from fullgnn.prepare.facts import GraphFacts
from fullgnn.prepare.prepared import LISTS, SHARED

_ALWAYS = ("node_id", "labels", "masks", "indptr", "indices", "reads", "reads_train")
_NAMES = {"integers": ("node_names",), "texts": ("node_names_ends", "node_names_utf8")}


def check_facts(facts: GraphFacts) -> None:
    """Refuse facts that contradict each other.

    Raises:
        DataError: one line that names the fact.
    """
    sizes, counts, nodes = facts.partition.sizes, facts.counts, facts.nodes
    b = len(sizes)
    for name, shape in {
        "nnz": (b, b),
        "train_nnz": (b, b),
        "loops": (b,),
        "train_loops": (b,),
        "split": (b, 3),
    }.items():
        array = getattr(counts, name)
        if array.shape != shape or array.min(initial=0) < 0:
            raise DataError(f"counts.{name} is not {shape} counts")
    printed = nodes.fingerprint
    equal = {
        "num_nodes": (facts.num_nodes, facts.partition.num_nodes, printed.num_nodes),
        "num_edges": (facts.num_edges, int(counts.nnz.sum()), printed.num_edges),
        "num_features": (nodes.num_features, printed.num_features),
        "num_classes": (facts.num_classes, printed.num_classes),
        "links.num_nodes": (facts.num_nodes, facts.num_nodes if nodes.links is None else nodes.links.num_nodes),
    }
    for name, values in equal.items():
        if len(set(values)) != 1:
            raise DataError(f"{name} is {' and '.join(map(str, dict.fromkeys(values)))}")
    if not 0 < facts.num_nodes < 2**31:
        raise DataError(f"num_nodes is {facts.num_nodes}")
    within = {"train_nnz": counts.nnz, "loops": sizes, "train_loops": counts.loops, "split": sizes[:, None]}
    for name, limit in within.items():
        if (getattr(counts, name) > limit).any():
            raise DataError(f"counts.{name} is larger than the graph")
    if nodes.links is not None and (nodes.links.num_users or 0) > facts.num_nodes:
        raise DataError(f"links.num_users is {nodes.links.num_users}")
    nodes.labels.check()


def is_sparse(facts: GraphFacts) -> bool:
    """Whether the parts keep the features as sparse matrices."""
    return facts.nodes.sparse and not facts.encoded_dtype


def check_names(names: Iterable[str], facts: GraphFacts) -> None:
    """Refuse a part that lacks an array which the ``facts`` ask for. A machine that holds a part for others has its
    ``SHARED`` arrays alone.

    Raises:
        DataError: one line that names the array.
    """
    names, needed = set(names), [*_ALWAYS]
    needed += [f"features_{part}" for part in (*PARTS, "shape")] if is_sparse(facts) else ["features"]
    prefixes = ["", *([] if facts.symmetric else ["columns_"])]
    needed += [f"{prefix}weight" for prefix in prefixes if facts.weighted]
    if not facts.symmetric:
        needed += ["columns_indptr", "columns_indices", "columns_reads"]
    if facts.nodes.links is not None:
        needed += ["first_pairs", *(f"{name}_{key}" for name in LISTS for key in ("indptr", "ids"))]
    needed += _NAMES.get(facts.nodes.node_names, ())
    if facts.encoded_dtype:
        needed.append("codec_state")
    if names <= set(SHARED):
        needed = [name for name in needed if name in SHARED]
    if missing := sorted(set(needed) - names):
        raise DataError(f"a part lacks the array {missing[0]}")


def check_array(name: str, array: np.ndarray, facts: GraphFacts, part: int, num_listed: int | None = None) -> None:
    """Refuse an ``array`` of a part that is not what its ``name`` promises, see ``Part``.

    Args:
        num_listed: for the starts of lists of partners, the number of all partners of this part.

    Raises:
        DataError: one line without the name of the array.
    """
    n, rows, num_nodes = int(facts.partition.sizes[part]), facts.counts.nnz, facts.num_nodes
    base = name.removeprefix("columns_")
    nnz = int((rows[part] if base == name else rows[:, part]).sum())
    listed = name.rpartition("_")[0] in LISTS
    length = nnz if num_listed is None else num_listed
    num_features = facts.nodes.num_features
    expected: dict[str, tuple[str, tuple[int, ...] | None]] = {
        "node_id": ("int64", (n,)),
        "features": (facts.encoded_dtype or "float", (n, facts.encoded_width or num_features)),
        "features_indptr": ("int64", (n + 1,)),
        "features_shape": ("int64", (2,)),
        "features_indices": ("int32", None if num_listed is None else (num_listed,)),
        "features_data": ("float", None),
        "state": ("uint8", None),
        "masks": ("bool", (3, n)),
        "indptr": ("int64", (n + 1,)),
        "indices": ("int32", (nnz,)),
        "weight": ("float", (nnz,)),
        "reads": ("int32", None),
        "reads_train": ("int32", None),
        "first_pairs": ("int64", (3, n)),
        "node_names": ("int64", (n,)),
        "node_names_ends": ("int64", (n + 1,)),
        "node_names_utf8": ("uint8", None),
        "labels": ("number", (n, *array.shape[1:2])),
        "ids": ("int", None),
    }
    key = name.rpartition("_")[2] if listed else base
    if key not in expected:
        return  # of a later version
    kind, shape = expected[key]
    of_kind = {"float": "f", "int": "i", "number": "fi"}
    if not (array.dtype.kind in of_kind[kind] if kind in of_kind else array.dtype == kind) or array.dtype.hasobject:
        raise DataError(f"it holds {quoted(array.dtype)}")
    if array.shape != (shape if shape is not None else (array.size,)):
        raise DataError(f"it has the shape {quoted(array.shape)}")
    starts = key in ("indptr", "features_indptr")
    if starts and (array[0] != 0 or array[-1] != length or (array[1:] < array[:-1]).any()):
        raise DataError("it does not rise from 0 to the number of entries")
    if key == "node_names_ends" and (array[0] != 0 or (array[1:] < array[:-1]).any()):
        raise DataError("it does not rise from 0")
    of_nodes = key in ("node_id", "indices", "reads", "reads_train", "ids")
    if of_nodes and array.size and (array.min() < 0 or array.max() >= num_nodes):
        raise DataError("it names nodes that the graph does not have")
    if key == "features_shape" and array.tolist() != [n, num_features]:
        raise DataError(f"it is {array.tolist()}")
    if key == "features_indices" and array.size and (array.min() < 0 or array.max() >= num_features):
        raise DataError("it names columns that the features do not have")
    if key in ("reads", "reads_train") and (array[1:] <= array[:-1]).any():
        raise DataError("it does not rise")
    if key == "labels" and array.dtype.kind == "i" and array.size:
        top = max(0, facts.num_classes - 1) if array.ndim == 1 else 1
        if array.min() < -1 or array.max() > top:
            raise DataError(f"it has labels beyond {top}")
