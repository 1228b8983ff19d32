"""The record as a page: one table a question."""

from collections.abc import Iterable
from typing import Any

from fullgnn.kernels.tiles import DENSITY_BINS
from fullgnn.report.table import format_table


def make_page(tree: dict[str, Any]) -> str:
    """Markdown of whatever the record holds so far."""
    blocks = ["# GPU benchmark", _about(tree), *_checks(tree.get("checks", [])), *_rates(tree.get("rates", {}))]
    for name, graph in tree.get("graphs", {}).items():
        blocks += _graph(name, graph)
    blocks += _hits(tree.get("hits", {}))
    blocks += _troubles(tree.get("items", []))
    return "\n\n".join(blocks) + "\n"


def make_headline(tree: dict[str, Any]) -> str:
    """What is printed at the end: the checks, and the first graph."""
    blocks = list(_checks(tree.get("checks", [])))[:1]
    for name, graph in list(tree.get("graphs", {}).items())[:1]:
        blocks += _graph(name, graph)
    return "\n\n".join(blocks)


def _about(tree: dict[str, Any]) -> str:
    run = dict(tree.get("run", {}))
    run |= {f"gpu {key}": value for key, value in tree.get("gpu", {}).items()}
    facts = [f"{key.replace('_', ' ')}: {_cell(value)}" for key, value in run.items() if not isinstance(value, dict)]
    return "\n".join(f"- {fact}" for fact in facts)


def _checks(checks: list[dict[str, Any]]) -> Iterable[str]:
    if not checks:
        return []
    failed = [check for check in checks if not check["passed"]]
    worst: dict[str, dict[str, Any]] = {}
    for check in checks:
        name = f"{check['kernel']} {check['mode']}"
        if check["error"] is not None and check["error"] >= (worst.get(name, {}).get("error") or 0):
            worst[name] = check
    rows = [
        [name, _cell(check["error"]), _cell(check["tolerance"]), str(check["width"]), check["block"]]
        for name, check in worst.items()
    ]
    lines = [f"## Checks: {len(checks) - len(failed)} of {len(checks)} passed"]
    lines.append(format_table(["kernel", "largest error", "allowed", "at width", "of block"], rows))
    if failed:
        lines.append(
            "\n".join(
                f"- FAILED: {one['kernel']} {one['mode']}, width {one['width']}, {one['block']}, {one['what']}: "
                f"error {_cell(one['error'])}"
                for one in failed[:40]
            )
        )
    return lines


def _rates(rates: dict[str, Any]) -> Iterable[str]:
    if not rates:
        return []
    rows = [
        [
            str(rate["row_bytes"]),
            "L2" if rate["resident"] else "memory",
            _cell(rate["gathered_gb_s"]),
            _cell(rate["index_select_gb_s"]),
        ]
        for rate in rates.get("gather", [])
    ]
    gemm = ", ".join(f"{key.split('_')[0]} {_cell(rate)}" for key, rate in rates.get("gemm", {}).items())
    lines = ["## Rates", f"Copy {_cell(rates.get('copy_gb_s'))} GB/s, read and written. GEMM, TFLOP/s: {gemm or '-'}."]
    if rows:
        lines.append(format_table(["bytes a row", "table in", "gathered GB/s", "index_select GB/s"], rows))
    return lines


def _graph(name: str, graph: dict[str, Any]) -> Iterable[str]:
    order = graph.get("order", "-") + (f" ({graph['order_reason']})" if "order_reason" in graph else "")
    lines = [f"## {name}"]
    lines.append(
        f"{graph.get('num_nodes', '-')} nodes, {graph.get('nnz', '-')} entries of A + I, scale "
        f"{_cell(graph.get('scale'))}, longest row {graph.get('longest_row', '-')}. Order: {order}."
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
        rows = [[kernel, _cell(one["setup_s"]), f"{one['bytes'] / 1e6:.1f}"] for kernel, one in setups.items()]
        lines += ["### Set-up", format_table(["kernel", "s", "MB beside the CSR"], rows)]
    if epochs := graph.get("epoch"):
        lines += ["### Epochs", format_table(*_epoch_table(epochs))]
    return lines


def _product_table(spmm: list[dict[str, Any]], shuffled: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """By width, the baseline first; speed-ups are over torch's CSR on the same graph in the same order."""
    base = {one["width"]: one["median_ms"] for one in spmm if one["kernel"] == "torch"}
    rows = []
    for width in sorted({one["width"] for one in spmm}):
        for one in spmm:
            if one["width"] == width:
                rows.append([f"{one['kernel']} {one['mode']}", *_product_cells(one, base.get(width))])
        for one in shuffled:
            if one["width"] == width:
                rows.append(["torch, shuffled graph", *_product_cells(one, base.get(width))])
    header = [
        "kernel",
        "width",
        "ms",
        "p20",
        "p80",
        "speed-up",
        "error",
        "Frobenius",
        "GB/s gathered",
        "of gather rate",
    ]
    return header, rows


def _product_cells(one: dict[str, Any], base_ms: Any) -> list[str]:
    speed_up = base_ms / one["median_ms"] if _numbers(base_ms, one["median_ms"]) else None
    share = one["share_of_gather_rate"]
    wrong = "" if one["correct"] else " WRONG"
    return [
        str(one["width"]),
        *(_cell(one[key]) for key in ("median_ms", "p20_ms", "p80_ms")),
        "-" if speed_up is None else f"{speed_up:.2f}",
        _cell(one["error"]) + wrong,
        _cell(one["error_frobenius"]),
        _cell(one["gathered_gb_s"]),
        f"{100 * share:.0f} % ({'L2' if one['x_fits_l2'] else 'memory'})" if _numbers(share) else _cell(share),
    ]


def _epoch_table(epochs: list[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    base = next((one["median_ms"] for one in epochs if one["preset"] == "naive"), None)
    rows = []
    for one in epochs:
        faster = base / one["median_ms"] if _numbers(base, one["median_ms"]) else None
        rows.append(
            [
                one["preset"],
                _cell(one["median_ms"]),
                "-" if faster is None else f"{faster:.2f}",
                "-" if one["peak_bytes"] is None else f"{one['peak_bytes'] / 1e9:.2f}",
                _cell(one["loss_error"]),
                _cell(one["setup_s"]),
                str(one["settings"].get("kernel", "-")),
                str(one["settings"].get("cuda_graph", "-")),
            ]
        )
    return ["preset", "ms", "speed-up", "peak GB", "loss error", "set-up s", "kernel (widths)", "CUDA graph"], rows


def _hits(hits: dict[str, Any]) -> Iterable[str]:
    if not hits:
        return []
    if "reason" in hits:
        return ["## L2 hit rates", f"Not read: {hits['reason']}"]
    rows = [
        [one["kernel"], one["launched"], str(one["width"]), _cell(one["hit_rate_percent"])] for one in hits["launches"]
    ]
    return ["## L2 hit rates", format_table(["kernel", "launched", "width", "sectors hit, %"], rows)]


def _troubles(items: list[dict[str, Any]]) -> Iterable[str]:
    """What has no result, and why; what has one reason is one line."""
    failed: dict[str, dict[str, None]] = {}
    for one in items:
        name, reason, where = one.get("item", "all of it"), one.get("reason", ""), one["job"].split()[0]
        if one["state"] == "left out":
            failed.setdefault(f"{where}: no time was left", {})[name] = None
        elif one["state"] == "missing":
            failed.setdefault(f"missing: {reason}", {})[name] = None
        elif one["state"] != "done":
            failed.setdefault(f"{where}: failed: {reason}", {})[name] = None
    lines = [f"- {why} ({len(names)}: {'; '.join(names)})" for why, names in failed.items()]
    return ["## Failed, missing and left out", "\n".join(lines)] if lines else []


def _numbers(*values: Any) -> bool:
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)


def _cell(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, float):
        return "-" if value is None else str(value)
    if value == 0 or 1e-2 <= abs(value) < 1e5:
        return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
    return f"{value:.1e}"
