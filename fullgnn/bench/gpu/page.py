"""The record of a part as a page of Markdown. A table is a dict of columns: the key of a value, or how to make it."""

from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any

from fullgnn.kernels.spmm.tiles import DENSITY_BINS
from fullgnn.telemetry.table import format_table

Row = Mapping[str, Any]
Columns = Mapping[str, str | Callable[[Row], Any]]
"""Header -> key of the row, or a function of the row."""


def _per_giga(key: str) -> Callable[[Row], Any]:
    return lambda row: row[key] / 1e9 if _numbers(row.get(key)) else row.get(key)


def _or_wrong(key: str) -> Callable[[Row], str]:
    return lambda row: cell(row[key]) + ("" if row["correct"] else " WRONG")


def _share_of_gather_rate(row: Row) -> Any:
    share = row["share_of_gather_rate"]
    return f"{100 * share:.0f} % ({'L2' if row['x_fits_l2'] else 'memory'})" if _numbers(share) else share


def _changed(row: Row) -> str:
    return ", ".join(f"{name} {value}" for name, value in row["changed"].items()) or "defaults"


CHECKS: Columns = {
    "subject": "subject",
    "compared": "what",
    "passed": "num_passed",
    "largest error": "error",
    "allowed": "tolerance",
    "at width": "width",
    "of": "case",
}
GATHERED: Columns = {
    "bytes a row": "row_bytes",
    "table in": lambda row: "L2" if row["resident"] else "memory",
    "gathered GB/s": "gathered_gb_s",
    "index_select GB/s": "index_select_gb_s",
}
PRODUCTS: Columns = {
    "kernel": "label",
    "width": "width",
    "ms": "median_ms",
    "p20": "p20_ms",
    "p80": "p80_ms",
    "speed-up": "speed_up",
    "error": _or_wrong("error"),
    "GB/s gathered": "gathered_gb_s",
    "of gather rate": _share_of_gather_rate,
}
SETUP: Columns = {"kernel": "kernel", "s": "setup_s", "MB beside the CSR": lambda row: f"{row['bytes'] / 1e6:.1f}"}
EPOCHS: Columns = {
    "preset": "preset",
    "dropout": lambda row: str(row["dropout"]),
    "ms": "median_ms",
    "speed-up": "speed_up",
    "peak GB": lambda row: None if row["peak_bytes"] is None else f"{row['peak_bytes'] / 1e9:.2f}",
    "loss error": "loss_error",
    "set-up s": "setup_s",
    "kernel": lambda row: row["settings"].get("kernel"),
    "CUDA graph": lambda row: row["settings"].get("cuda_graph"),
}
LAUNCHES: Columns = {"kernel": "kernel", "launches": "launches", "ms": "total_ms"}
GAPS: Columns = {"idle after": "after", "before": "before", "gaps": "gaps", "ms": "total_ms"}
SWEEP: Columns = {
    "constants": "section",
    "timed": "kernel",
    "graph": "graph",
    "width": "width",
    "changed": _changed,
    "ms": _or_wrong("median_ms"),
    "over defaults": "over_defaults",
}
HITS: Columns = {
    "kernel": "kernel",
    "launched": "launched",
    "width": "width",
    "L2 hits, %": lambda row: row.get("hit_rate_percent"),
    "L1 hits, %": lambda row: row.get("l1_hit_rate_percent"),
    "DRAM GB/s": _per_giga("dram_bytes_per_second"),
    "L2 GB/s": _per_giga("l2_bytes_per_second"),
    "L1 GB/s": _per_giga("l1_bytes_per_second"),
}
PLAN: Columns = {"graph": "graph", "GPUs": "world_size", "planned": "predicted_epoch", "measured, ms": "measured"}


def make_page(tree: dict[str, Any]) -> str:
    """Markdown of whatever the record holds so far."""
    blocks = [f"# GPU benchmark: {tree.get('run', {}).get('part', '-')}", _about(tree), *_checks(tree)]
    if rates := tree.get("rates"):
        gemm = ", ".join(f"{key.split('_')[0]} {cell(rate)}" for key, rate in rates.get("gemm", {}).items())
        copy = f"Copy {cell(rates.get('copy_gb_s'))} GB/s, read and written. GEMM, TFLOP/s: {gemm or '-'}."
        blocks += ["## Rates", copy, *_table(GATHERED, rates.get("gather", []))]
    for name, graph in tree.get("graphs", {}).items():
        blocks += _graph(name, graph)
    blocks += _table(SWEEP, _over_defaults(tree.get("sweep", [])), "## Sweep")
    if hits := tree.get("hits"):
        counted = [f"Not read: {hits['reason']}"] if "reason" in hits else _table(HITS, hits["launches"])
        blocks += ["## Memory traffic by ncu", *counted]
    blocks += _table(PLAN, _planned(tree), "## The plan beside the measurement")
    for target, text in tree.get("reproduce", {}).items():
        blocks += [f"## Reproduced: {target}", "\n".join(f"> {line}".rstrip() for line in text.splitlines())]
    return "\n\n".join([*blocks, *_troubles(tree.get("items", []))]) + "\n"


def make_headline(tree: dict[str, Any]) -> str:
    """What is printed at the end: the checks, and the first graph."""
    graphs = list(tree.get("graphs", {}).items())[:1]
    return "\n\n".join([*_checks(tree), *(block for name, graph in graphs for block in _graph(name, graph))])


def cell(value: Any) -> str:
    """A value with three digits."""
    if isinstance(value, bool) or not isinstance(value, float):
        return "-" if value is None else str(value)
    if value == 0 or 1e-2 <= abs(value) < 1e5:
        return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
    return f"{value:.1e}"


def _table(columns: Columns, rows: Iterable[Row], *above: str) -> list[str]:
    """The blocks ``above`` and the table below them; no block if there are no rows."""
    cells = [[cell(row[how] if isinstance(how, str) else how(row)) for how in columns.values()] for row in rows]
    return [*above, format_table(list(columns), cells)] if cells else []


def _numbers(*values: Any) -> bool:
    """Whether all of them are numbers, not words in their place."""
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)


def _ratio(one: Any, other: Any, digits: int = 2) -> str | None:
    return f"{one / other:.{digits}f}" if _numbers(one, other) else None


def _about(tree: dict[str, Any]) -> str:
    run = {**tree.get("run", {}), **{f"gpu {key}": value for key, value in tree.get("gpu", {}).items()}}
    facts = [f"{key.replace('_', ' ')}: {cell(value)}" for key, value in run.items() if not isinstance(value, dict)]
    facts += [f"{name}: {value}" for name, value in run.get("versions", {}).items()]
    return "\n".join(f"- {fact}" for fact in facts)


def _checks(tree: dict[str, Any]) -> list[str]:
    """By subject and what was compared, the check that came nearest to its tolerance; and every one that failed."""
    checks = tree.get("checks", [])
    failed = [check for check in checks if not check["passed"]]
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for check in checks:
        groups.setdefault((check["subject"], check["what"]), []).append(check)
    rows = []
    for group in groups.values():
        worst = max(group, key=lambda one: (not one["passed"], one["error"] or 0.0))
        rows.append({**worst, "num_passed": f"{sum(one['passed'] for one in group)} of {len(group)}"})
    lines = [
        f"- FAILED: {one['subject']}, {one['what']}, width {one['width']}, {one['case']}: error "
        f"{cell(one['error'])}{': ' + one['said'] if one['said'] else ''}"
        for one in failed[:60]
    ]
    title = f"## Checks: {len(checks) - len(failed)} of {len(checks)} passed"
    return _table(CHECKS, rows, title) + (["\n".join(lines)] if lines else [])


def _graph(name: str, graph: dict[str, Any]) -> list[str]:
    """The blocks of a graph: the graph, its products, its epochs."""
    order = graph.get("order", "-") + (f" ({graph['order_reason']})" if "order_reason" in graph else "")
    about = (
        f"{graph.get('num_nodes', '-')} nodes, {graph.get('nnz', '-')} entries of A + I, scale "
        f"{cell(graph.get('scale'))}, longest row {graph.get('longest_row', '-')}. Order: {order}."
    )
    tiles: Columns = {"order": "order"} | {f"{percent} %": percent for percent in DENSITY_BINS}
    densities = [
        {"order": label} | {percent: f"{100 * share:.1f} %" for percent, share in zip(DENSITY_BINS, graph[key])}
        for label, key in (("as ordered", "tile_density"), ("shuffled", "tile_density_shuffled"))
        if key in graph
    ]
    blocks = [f"## {name}", about]
    blocks += _table(tiles, densities, "Share of the entries in tiles of 32 x 32, by how full a tile is:")
    blocks += _table(PRODUCTS, _products(graph), "### Products")
    setups = [{"kernel": kernel, **one} for kernel, one in graph.get("setup", {}).items()]
    blocks += _table(SETUP, setups, "### Set-up")
    epochs = graph.get("epoch", [])
    naive = {one["dropout"]: one["median_ms"] for one in epochs if one["preset"] == "naive"}
    rows = [{**one, "speed_up": _ratio(naive.get(one["dropout"]), one["median_ms"])} for one in epochs]
    blocks += _table(EPOCHS, rows, "### Epochs")
    for found in graph.get("launches", []):
        blocks += [
            f"### One epoch of {found['preset']}, dropout {found['dropout']}, by launch",
            f"{cell(found['busy_ms'])} ms at work and {cell(found['idle_ms'])} ms idle, means of {found['epochs']} "
            "epochs.",
            *_table(LAUNCHES, found["kernels"]),
            *_table(GAPS, found["gaps"][:15]),
        ]
    return blocks


def _products(graph: dict[str, Any]) -> list[dict[str, Any]]:
    """By width, in the order of the record; speed-ups are over torch's CSR on the same graph in the same order."""
    spmm, shuffled = graph.get("spmm", []), graph.get("spmm_shuffled", [])
    base = {one["width"]: one["median_ms"] for one in spmm if one["kernel"] == "torch ieee"}
    rows = [{**one, "label": one["kernel"]} for one in spmm]
    widths = {one["width"] for one in rows}
    rows += [{**one, "label": f"{one['kernel']}, shuffled graph"} for one in shuffled if one["width"] in widths]
    for row in rows:
        row["speed_up"] = _ratio(base.get(row["width"]), row["median_ms"])
    return sorted(rows, key=itemgetter("width"))


def _over_defaults(rows: list[Row]) -> list[Row]:
    """The rows of the sweep, with each time over that of the defaults in its case."""
    case = itemgetter("section", "kernel", "graph", "width")
    base = {case(row): row["median_ms"] for row in reversed(rows) if not row["changed"]}
    return [{**row, "over_defaults": _ratio(row["median_ms"], base.get(case(row)), digits=3)} for row in rows]


def _planned(tree: dict[str, Any]) -> list[Row]:
    """The planner's epochs, beside the one that was measured on one GPU."""
    rows: list[Row] = []
    for name, options in tree.get("plan", {}).items():
        epochs = tree.get("graphs", {}).get(name, {}).get("epoch", [])
        measured = next((one["median_ms"] for one in epochs if one["preset"] == "full" and not one["dropout"]), None)
        for option in options:
            rows.append({"graph": name, **option, "measured": measured if option["world_size"] == 1 else None})
    return rows


def _troubles(items: list[dict[str, Any]]) -> list[str]:
    """What has no result, and why; what has one reason is one line."""
    causes = {
        "left out": "{job}: no time was left",
        "missing": "missing: {reason}",
        "failed": "{job}: failed: {reason}",
    }
    names: dict[str, dict[str, None]] = {}
    for one in items:
        if one["state"] in causes:
            cause = causes[one["state"]].format(job=one["job"], reason=one.get("reason", ""))
            names.setdefault(cause, {})[one.get("item", "all of it")] = None
    lines = [f"- {cause} ({len(found)}: {'; '.join(found)})" for cause, found in names.items()]
    return ["## Failed, missing and left out", "\n".join(lines)] if lines else []
