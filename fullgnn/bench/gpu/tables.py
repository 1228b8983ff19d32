"""The tables of one graph, and of the sweep."""

from collections.abc import Iterable
from typing import Any

from fullgnn.kernels.spmm.tiles import DENSITY_BINS
from fullgnn.telemetry.table import format_table


def graph_blocks(name: str, graph: dict[str, Any]) -> Iterable[str]:
    """Blocks of Markdown: the graph, its products, its epochs."""
    order = graph.get("order", "-") + (f" ({graph['order_reason']})" if "order_reason" in graph else "")
    lines = [f"## {name}"]
    lines.append(
        f"{graph.get('num_nodes', '-')} nodes, {graph.get('nnz', '-')} entries of A + I, scale "
        f"{cell(graph.get('scale'))}, longest row {graph.get('longest_row', '-')}. Order: {order}."
    )
    densities = [
        [label, *(f"{100 * share:.1f} %" for share in graph[key])]
        for label, key in (("as ordered", "tile_density"), ("shuffled", "tile_density_shuffled"))
        if key in graph
    ]
    if densities:
        lines.append("Share of the entries in tiles of 32 x 32, by how full a tile is:")
        lines.append(format_table(["order", *(f"{density} %" for density in DENSITY_BINS)], densities))
    spmm = graph.get("spmm", [])
    if spmm:
        lines += ["### Products", format_table(*_product_table(spmm, graph.get("spmm_shuffled", [])))]
    if setups := graph.get("setup"):
        rows = [[kernel, cell(one["setup_s"]), f"{one['bytes'] / 1e6:.1f}"] for kernel, one in setups.items()]
        lines += ["### Set-up", format_table(["kernel", "s", "MB beside the CSR"], rows)]
    if epochs := graph.get("epoch"):
        lines += ["### Epochs", format_table(*_epoch_table(epochs))]
    for found in graph.get("launches", []):
        lines += _launches(found)
    return lines


def sweep_blocks(rows: list[dict[str, Any]]) -> Iterable[str]:
    """Every time of the sweep, over that of the defaults in its case."""
    if not rows:
        return []
    base = {_case(row): row["median_ms"] for row in reversed(rows) if not row["changed"]}
    cells = []
    for row in rows:
        ms, default = row["median_ms"], base.get(_case(row))
        what = ", ".join(f"{name} {value}" for name, value in row["changed"].items()) or "defaults"
        over = f"{ms / default:.3f}" if numbers(ms, default) else "-"
        wrong = "" if row["correct"] else " WRONG"
        cells.append([row["section"], row["kernel"], row["graph"], str(row["width"]), what, cell(ms) + wrong, over])
    header = ["constants", "timed", "graph", "width", "changed", "ms", "over defaults"]
    return ["## Sweep", format_table(header, cells)]


def _case(row: dict[str, Any]) -> tuple[str, str, str, int]:
    return row["section"], row["kernel"], row["graph"], row["width"]


def _product_table(spmm: list[dict[str, Any]], shuffled: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """By width, the baseline first; speed-ups are over torch's CSR on the same graph in the same order."""
    base = {one["width"]: one["median_ms"] for one in spmm if one["kernel"] == "torch ieee"}
    rows = []
    for width in sorted({one["width"] for one in spmm}):
        for label, entries in (("", spmm), (", shuffled graph", shuffled)):
            for one in entries:
                if one["width"] == width:
                    rows.append([one["kernel"] + label, *_product_cells(one, base.get(width))])
    header = ["kernel", "width", "ms", "p20", "p80", "speed-up", "error", "GB/s gathered", "of gather rate"]
    return header, rows


def _product_cells(one: dict[str, Any], base_ms: Any) -> list[str]:
    speed_up = base_ms / one["median_ms"] if numbers(base_ms, one["median_ms"]) else None
    share = one["share_of_gather_rate"]
    wrong = "" if one["correct"] else " WRONG"
    return [
        str(one["width"]),
        *(cell(one[key]) for key in ("median_ms", "p20_ms", "p80_ms")),
        "-" if speed_up is None else f"{speed_up:.2f}",
        cell(one["error"]) + wrong,
        cell(one["gathered_gb_s"]),
        f"{100 * share:.0f} % ({'L2' if one['x_fits_l2'] else 'memory'})" if numbers(share) else cell(share),
    ]


def _epoch_table(epochs: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Speed-ups are over ``naive`` at the same rate of dropout."""
    base = {one["dropout"]: one["median_ms"] for one in epochs if one["preset"] == "naive"}
    rows = []
    for one in epochs:
        before = base.get(one["dropout"])
        rows.append(
            [
                one["preset"],
                str(one["dropout"]),
                cell(one["median_ms"]),
                f"{before / one['median_ms']:.2f}" if numbers(before, one["median_ms"]) else "-",
                "-" if one["peak_bytes"] is None else f"{one['peak_bytes'] / 1e9:.2f}",
                cell(one["loss_error"]),
                cell(one["setup_s"]),
                str(one["settings"].get("kernel", "-")),
                str(one["settings"].get("cuda_graph", "-")),
            ]
        )
    header = [
        "preset",
        "dropout",
        "ms",
        "speed-up",
        "peak GB",
        "loss error",
        "set-up s",
        "kernel",
        "CUDA graph",
    ]
    return header, rows


def _launches(found: dict[str, Any]) -> Iterable[str]:
    """What the GPU did in an epoch, and where it did nothing."""
    lines = [
        f"### One epoch of {found['preset']}, dropout {found['dropout']}, by launch",
        f"{cell(found['busy_ms'])} ms at work and {cell(found['idle_ms'])} ms idle, means of {found['epochs']} epochs.",
    ]
    rows = [[one["kernel"], cell(one["launches"]), cell(one["total_ms"])] for one in found["kernels"]]
    lines.append(format_table(["kernel", "launches", "ms"], rows))
    if found["gaps"]:
        rows = [[one["after"], one["before"], cell(one["gaps"]), cell(one["total_ms"])] for one in found["gaps"][:15]]
        lines.append(format_table(["idle after", "before", "gaps", "ms"], rows))
    return lines


def numbers(*values: Any) -> bool:
    """Whether all of them are numbers, not words in their place."""
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)


def cell(value: Any) -> str:
    """A value with three digits."""
    if isinstance(value, bool) or not isinstance(value, float):
        return "-" if value is None else str(value)
    if value == 0 or 1e-2 <= abs(value) < 1e5:
        return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
    return f"{value:.1e}"
