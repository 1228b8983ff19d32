"""``fullgnn.inspect``: look at a graph before it is trained on."""

import time
from collections.abc import Mapping
from typing import Any

from fullgnn.config import Config
from fullgnn.config.compose import compose, load_config
from fullgnn.config.overrides import as_overrides
from fullgnn.engine.run import with_supported_optimizations
from fullgnn.errors import one_line_errors, quoted
from fullgnn.graph import Graph
from fullgnn.graph.convert import as_graph, has_splits_in_columns
from fullgnn.graph.node_names import NodeNames, Texts
from fullgnn.graph.sparse_features import features_to_arrays
from fullgnn.report.inspection.features import features_of
from fullgnn.report.inspection.findings import Inspection
from fullgnn.report.inspection.labels import labels_of
from fullgnn.report.inspection.leaks import leaks_of
from fullgnn.report.inspection.odd import odd
from fullgnn.report.inspection.passes import Passes
from fullgnn.report.inspection.ranks import layouts_of, run_of
from fullgnn.report.inspection.structure import structure_of
from fullgnn.telemetry.machine import within_memory

_SHOWN = 3
"""Names that are given as examples."""


@one_line_errors
def inspect(graph: Any, *settings: str | Mapping[str, Any], **groups: Any) -> Inspection:
    """Look at a graph before it is trained on: sizes, degrees, components, homophily, classes, leaks, memory, oddities.

    ``print(fullgnn.inspect(graph))`` shows what ``python -m fullgnn.inspect`` shows of a dataset. Beside a few arrays
    of the size of the nodes nothing is copied, and no entry is compared with all others: a graph of 100 million entries
    takes less than a minute on two cores.

    Args:
        graph: whatever ``fullgnn.train_graph`` takes.
        settings, groups: keys of the run whose memory is planned, as in ``fullgnn.train_graph``: ``model="gat"``.
            Without a task it is node regression where the labels are values.

    Raises:
        FullGNNError: a user error.
    """
    overrides = as_overrides([*settings, groups])
    split = load_config(compose(*overrides)).dataset.get("split") if has_splits_in_columns(graph) else None
    given = as_graph(graph, split)
    return look_at(given, run_for(given, overrides))


def run_for(graph: Graph, overrides: list[str]) -> Config:
    """The run of ``overrides``, whose task fits the labels of ``graph`` where no task is chosen.

    Raises:
        ConfigError: an override is wrong.
    """
    chosen = any(override.lstrip("+").partition("=")[0] == "task" for override in overrides)
    values = graph.labels.dtype.kind == "f" and not chosen
    fitting = ["task=node_regression"] if values else []
    return with_supported_optimizations(load_config(compose(*fitting, *overrides)))


def look_at(graph: Graph, cfg: Config) -> Inspection:
    """Inspect ``graph``, and plan a run of ``cfg`` on it."""
    begin = time.perf_counter()
    with within_memory(f"the inspection of {graph.name}"):
        passes = Passes.over(graph)
        structure, labels = structure_of(graph, passes), labels_of(graph, passes)
        leaks, features = leaks_of(graph, passes), features_of(graph)
        del passes
        layouts, unplanned = layouts_of(graph, cfg)
    links = [pairs for pairs in (graph.val_links, graph.test_links) if pairs is not None]
    return Inspection(
        name=graph.name,
        num_nodes=graph.num_nodes,
        num_edges=graph.num_edges,
        num_users=graph.num_users,
        held_out_pairs=sum(pairs.shape[1] for pairs in links) if links else None,
        graph_bytes=_num_bytes(graph),
        remarks=dict(graph.remarks),
        structure=structure,
        labels=labels,
        leaks=leaks,
        features=features,
        layouts=layouts,
        layouts_of=run_of(cfg),
        unplanned=unplanned,
        odd=tuple(odd(graph.num_edges, structure, labels, features)),
        seconds=time.perf_counter() - begin,
        node_names=_named(graph.node_names),
    )


def _num_bytes(graph: Graph) -> int:
    masks = graph.train_mask, graph.val_mask, graph.test_mask
    arrays = (graph.indptr, graph.indices, graph.weight, graph.labels, *masks)
    features = features_to_arrays(graph.features).values()
    return sum(array.nbytes for array in (*arrays, *features) if array is not None)


def _named(names: NodeNames | None) -> str | None:
    """A phrase such as ``integers from 35 to 1155073, in no order and with gaps: 31336, 1061127, 1106406, ...``.

    Args:
        names: (num_nodes,), of a ``Graph``; None: nodes are called by their numbers, and so is what is returned.
    """
    if names is None:
        return None
    examples = ", ".join(quoted(name) if isinstance(name, str) else str(name) for name in names[:_SHOWN].tolist())
    shown = f"{examples}{', ...' if len(names) > _SHOWN else ''}"
    if isinstance(names, Texts):
        return f"texts: {shown}"
    low, high = int(names.min()), int(names.max())
    order = "in ascending order" if bool((names[1:] > names[:-1]).all()) else "in no order"
    gaps = "with gaps" if high - low >= len(names) else "without gaps"
    return f"integers from {low} to {high}, {order} and {gaps}: {shown}"
