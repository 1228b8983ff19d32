"""An inspection as plain text, which is also Markdown: sections of sentences and tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fullgnn.errors import quoted
from fullgnn.graph.remarks import sentences
from fullgnn.report.inspection.findings import Degrees, Inspection, Labels, Leaks, RankLoad, Topology
from fullgnn.report.inspection.odd import listed
from fullgnn.report.replicates import Quantity, rows_of
from fullgnn.telemetry.screen import WIDTH, folded, format_narrow_table, format_table, num_bytes, percent

COUNT = "{:,}".format
MAX_CLASSES = 20
"""Rows of the table of classes; more classes are summed up in a last row."""
_BAR = 20
_LEAST_IMPORTANT = ("rows", "edge cut", "received")
"""Headings of the columns that a narrow screen has no room for."""

TextTable = tuple[list[str], list[list[str]]]
"""A header and rows of cells; the first cell of a row is its heading."""


def page(inspection: Inspection, width: int = WIDTH) -> str:
    """The whole text, in lines of at most ``width`` columns, but for tables."""
    lines: list[str] = []
    for title, blocks in sections(inspection).items():
        lines += [f"## {title}", ""] if title else []
        for block in blocks:
            lines += [folded(block, width) if isinstance(block, str) else _table(block, width), ""]
    return "\n".join(lines).rstrip()


def sections(inspection: Inspection) -> dict[str, list[str | TextTable]]:
    """The sentences and tables of each section, by its title; the first one has none."""
    made: dict[str, Iterator[str | TextTable]] = {
        "": overview(inspection),
        "Degrees": degree_section(inspection.structure),
        "Components": iter([components(inspection.structure)]),
        "Labels": label_section(inspection.labels),
        "Leaks": leak_section(inspection.leaks),
        "Features": feature_section(inspection),
        "Ranks": rank_section(inspection),
        "Odd": iter(inspection.odd or ["Nothing odd was found."]),
    }
    return {title: list(blocks) for title, blocks in made.items()}


def without_bars(table: TextTable) -> TextTable:
    """A table whose columns have headings, but perhaps the first one."""
    header, rows = table
    kept = [at for at, heading in enumerate(header) if heading.strip() or not at]
    return [header[at] for at in kept], [[row[at] for at in kept] for row in rows]


def overview(inspection: Inspection) -> Iterator[str]:
    """Sizes, and what was merged, dropped or noticed when the graph was made."""
    users = "" if inspection.num_users is None else f" ({inspection.num_users:,} users, the others are items)"
    held_out = "" if inspection.held_out_pairs is None else f" {inspection.held_out_pairs:,} pairs are held out."
    weights = inspection.structure.weights
    weighted = "" if weights is None else f" Their weights are between {weights[0]:g} and {weights[1]:g}."
    one_way = inspection.structure.one_way_arcs
    symmetric = "symmetric" if inspection.structure.symmetric else "directed"
    if one_way:
        symmetric += f", since {one_way:,} of them have no entry of the other direction"
    yield (
        f"{inspection.name}: {inspection.num_nodes:,} nodes{users} and {inspection.num_edges:,} stored entries; the"
        f" graph is {symmetric}.{weighted}{held_out} It takes {num_bytes(inspection.graph_bytes)} in memory."
    )
    yield "An undirected edge is two entries, one for each direction; a self-loop is one."
    if inspection.node_names is not None:
        yield f"The nodes have names of their own, which are {inspection.node_names}."
    for sentence in sentences(inspection.remarks):
        yield f"Noted as it was read: {sentence}."


def degree_section(structure: Topology) -> Iterator[str | TextTable]:
    """Two tables: percentiles, and a histogram in powers of two."""
    kinds = {"in": structure.in_degrees, "out": structure.out_degrees}
    if structure.symmetric:
        kinds = {"in and out": structure.in_degrees}
        yield "Every node reads the nodes that read it, so its in-degree is its out-degree."
    else:
        yield "In: the nodes that a node reads. Out: the nodes that read it."
    yield degree_table(kinds)
    yield histogram(kinds)


def degree_table(kinds: dict[str, Degrees]) -> TextTable:
    """A row for each kind of degree."""
    columns = [Quantity("", "kind"), *(Quantity(name, name, COUNT) for name in ("min", "median", "p90", "p99", "max"))]
    columns += [Quantity("mean", "mean", "{:.2f}".format), Quantity("share of 0", "zero_share", percent)]
    return _by_record(columns, [vars(degrees) | {"kind": name} for name, degrees in kinds.items()])


def histogram(kinds: dict[str, Degrees]) -> TextTable:
    """Nodes by degree, with a bar for their share of the largest count."""
    header = ["degree"]
    for name in kinds:
        header += [f"nodes, {name}", " " * _BAR]
    bins = max(len(degrees.histogram) for degrees in kinds.values())
    most = max(max(degrees.histogram) for degrees in kinds.values())
    rows = []
    for k in range(bins):
        low, high = (1 << k) >> 1, (1 << k) - 1
        row = [f"{low:,}" if low >= high else f"{low:,} to {high:,}"]
        for degrees in kinds.values():
            count = degrees.histogram[k] if k < len(degrees.histogram) else 0
            row += [f"{count:,}", ("#" * -(-count * _BAR // most)).ljust(_BAR)]
        rows.append(row)
    return header, rows


def components(structure: Topology) -> str:
    """A sentence on the weak components."""
    if structure.num_components == 1:
        return "The graph is connected, if directions do not matter."
    sizes = [f"{size:,}" for size in structure.largest_components]
    return (
        f"If directions do not matter, the graph has {structure.num_components:,} connected components. The largest"
        f" have {', '.join(sizes)} nodes; {structure.isolated_nodes:,} nodes have no edge, and"
        f" {structure.only_self_loop:,} have none but to themselves."
    )


def label_section(labels: Labels | None) -> Iterator[str | TextTable]:
    """What the labels are, a table of the split, and homophily."""
    if labels is None:
        yield "No node has a label."
        return
    parts = [name for name, count in labels.split.items() if count]
    sizes = ", ".join(
        f"{labels.split[name]:,} in {name if name != 'none' else 'no part of the split'}" for name in parts
    )
    yield f"{labels.kind}; {labels.num_labelled:,} nodes are labelled. Nodes by part: {sizes}."
    if labels.num_several is not None:
        num_set = sum(map(sum, labels.classes.values()))
        yield f"They have {num_set:,} labels in all, and {labels.num_several:,} nodes have several."
    if labels.classes:
        yield class_table(labels, parts)
    if labels.means:
        header = ["", *labels.means]
        yield (
            header,
            [
                [name, *(f"{pair[at]:.6g}" for pair in labels.means.values())]
                for at, name in enumerate(("mean", "standard deviation"))
            ],
        )
    if labels.homophily is not None:
        yield homophily(labels)


def class_table(labels: Labels, parts: Sequence[str]) -> TextTable:
    """Labelled nodes by class and part of the split, each with its share of the part; the largest classes first."""
    counts = [labels.classes[name] for name in parts]
    by_class = list(zip(*counts))
    order = sorted(range(len(by_class)), key=lambda k: (-sum(by_class[k]), k))
    shown = order if len(order) <= MAX_CLASSES else order[: MAX_CLASSES - 1]
    names = labels.class_names
    cells = {f"{k}" if names is None else f"{k} {quoted(names[k])}": by_class[k] for k in shown}
    if len(shown) < len(order):
        rest = [by_class[k] for k in order[len(shown) :]]
        cells[f"{len(rest):,} others"] = tuple(map(sum, zip(*rest)))
    totals = [max(1, sum(column)) for column in counts]
    rows = []
    for name, row in cells.items():
        rows.append([name, *(f"{count:,} ({100 * count / total:.1f} %)" for count, total in zip(row, totals))])
    return ["class", *(name if name != "none" else "no part" for name in parts)], rows


def homophily(labels: Labels) -> str:
    """A sentence on how alike neighbours are."""
    shares = labels.homophily
    assert shares is not None
    if shares.edge is None:
        return "No edge joins two different labelled nodes, so homophily is not defined."
    adjusted = "not defined, since all have one class" if shares.adjusted is None else f"{shares.adjusted:.4f}"
    return (
        f"Homophily, the share of neighbours with the node's own class, is {shares.edge:.4f} over the arcs, and"
        f" {shares.node:.4f} as the mean over the nodes. Adjusted for the sizes of the classes it is {adjusted}: 0 is"
        " what classes at random would give, and 1 is the most."
    )


def leak_section(leaks: Leaks | None) -> Iterator[str]:
    """What training may know of the answers."""
    if leaks is None:
        yield "There are no training and test nodes to compare."
        return
    yield "No node is in two parts of the split: a graph with such a node would have been refused."
    if leaks.same_neighbours is not None:
        yield (
            f"{_of(leaks.same_neighbours, leaks.num_test)} have a training node with the same neighbours: both nodes"
            " read the same nodes, and are read by the same nodes, of which there is at least one."
        )
    if leaks.same_features is not None:
        yield f"{_of(leaks.same_features, leaks.num_test)} have a training node with the same features, not all 0."
    if leaks.label_columns:
        yield f"The label is among the features, or a one-to-one map of it: column {listed(leaks.label_columns)}."
    if leaks.class_columns:
        yield f"Features that have one number for each class, and so tell of it: column {listed(leaks.class_columns)}."
    if not leaks.label_columns and not leaks.class_columns:
        yield "No feature column is the label, or a map of it."


def feature_section(inspection: Inspection) -> Iterator[str]:
    """Memory, density, and the spread of the columns."""
    features = inspection.features
    if features is None:
        yield (
            "The nodes have no features: a model learns from trainable vectors instead, as with"
            " model.embedding_channels=64."
        )
        return
    taken = {"dense": num_bytes(features.dense_bytes), "sparse": num_bytes(features.sparse_bytes)}
    kept, other = ("sparse", "dense") if features.sparse else ("dense", "sparse")
    yield (
        f"{features.num_columns:,} columns of {features.dtype}, of whose numbers {percent(features.density)} are not 0."
        f" They are {kept} and take {taken[kept]}; {other} features would take {taken[other]}."
    )
    if features.narrowest and features.widest:
        yield (
            f"The standard deviation of the columns that vary is between"
            f" {features.narrowest.deviation:.3g} (column {features.narrowest.number}) and"
            f" {features.widest.deviation:.3g} (column {features.widest.number})."
        )


def rank_section(inspection: Inspection) -> Iterator[str | TextTable]:
    """What a rank would hold."""
    yield (
        "Block rows of equal size in the order of the dataset; partition=metis or another order may cut less. Each"
        " number is that of the rank with most of it."
    )
    if not inspection.unplanned:
        yield (
            f"Planned, not measured, for {inspection.layouts_of}. Halo: nodes of other block rows that a rank reads."
            " Tensors: the peak of a training epoch. Received: in such an epoch."
        )
        if inspection.features is not None and inspection.features.sparse_bytes < inspection.features.dense_bytes / 2:
            yield "The features are planned as dense ones, also where a run would multiply them as a sparse matrix."
    yield rank_table(inspection.layouts)
    if inspection.unplanned:
        yield f"Memory is not planned: {inspection.unplanned}."


def rank_table(layouts: Sequence[RankLoad]) -> TextTable:
    """A row for each number of ranks and scheme."""
    columns = [Quantity("ranks", "world_size"), Quantity("scheme", "scheme"), Quantity("rows", "rows", COUNT)]
    columns += [Quantity("non-zeros", "nnz", COUNT), Quantity("edge cut", "edge_cut", percent)]
    columns += [Quantity("halo", "halo_rows", COUNT)]
    if any(layout.tensor_bytes is not None for layout in layouts):
        columns += [Quantity("tensors", "tensor_bytes", num_bytes), Quantity("received", "received_bytes", num_bytes)]
    replicas = ["" if layout.replication == 1 else f" r={layout.replication}" for layout in layouts]
    return _by_record(columns, [vars(at) | {"scheme": at.scheme + r} for at, r in zip(layouts, replicas)])


def _by_record(columns: Sequence[Quantity], records: Sequence[Mapping[str, Any]]) -> TextTable:
    """A row for each record."""
    header, *rows = map(list, zip(*rows_of(columns, records, "-")))
    return header, rows


def _of(count: int, num_test: int) -> str:
    return f"{count:,} of {num_test:,} test nodes ({percent(count / num_test)})"


def _table(table: TextTable, width: int) -> str:
    header, rows = table
    if header[-1:] == [" " * _BAR]:
        return format_table(header, rows)
    text, lacking = format_narrow_table(header, rows, width, _LEAST_IMPORTANT)
    return text + ("\n\n" + folded(f"A wider screen also has {', '.join(lacking)}.", width) if lacking else "")
