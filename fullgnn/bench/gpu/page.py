"""The record of a part as a page: one table a question."""

from collections.abc import Iterable
from typing import Any

from fullgnn.bench.gpu.tables import cell, graph_blocks, sweep_blocks
from fullgnn.telemetry.table import format_table


def make_page(tree: dict[str, Any]) -> str:
    """Markdown of whatever the record holds so far."""
    blocks = [
        f"# GPU benchmark: {tree.get('run', {}).get('part', '-')}",
        _about(tree),
        *_checks(tree.get("checks", [])),
    ]
    blocks += _rates(tree.get("rates", {}))
    for name, graph in tree.get("graphs", {}).items():
        blocks += graph_blocks(name, graph)
    blocks += sweep_blocks(tree.get("sweep", []))
    blocks += _hits(tree.get("hits", {}))
    blocks += _plan(tree.get("plan", {}), tree.get("graphs", {}))
    blocks += _reproduced(tree.get("reproduce", {}))
    blocks += _troubles(tree.get("items", []))
    return "\n\n".join(blocks) + "\n"


def make_headline(tree: dict[str, Any]) -> str:
    """What is printed at the end: the checks, and the first graph."""
    blocks = list(_checks(tree.get("checks", [])))
    for name, graph in list(tree.get("graphs", {}).items())[:1]:
        blocks += graph_blocks(name, graph)
    return "\n\n".join(blocks)


def _about(tree: dict[str, Any]) -> str:
    run = dict(tree.get("run", {}))
    run |= {f"gpu {key}": value for key, value in tree.get("gpu", {}).items()}
    facts = [f"{key.replace('_', ' ')}: {cell(value)}" for key, value in run.items() if not isinstance(value, dict)]
    facts += [f"{name}: {value}" for name, value in run.get("versions", {}).items()]
    return "\n".join(f"- {fact}" for fact in facts)


def _checks(checks: list[dict[str, Any]]) -> Iterable[str]:
    """A row for each subject and what was compared, with what the worst of its checks says; and every failure."""
    if not checks:
        return []
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for check in checks:
        groups.setdefault((check["subject"], check.get("what", "-")), []).append(check)
    rows = []
    for names, group in groups.items():
        worst = max(group, key=lambda one: (not one["passed"], one.get("error") or 0.0))
        rows.append([*names, f"{sum(one['passed'] for one in group)} of {len(group)}", _details(worst)])
    failed = [check for check in checks if not check["passed"]]
    header = ["subject", "compared", "passed", "found"]
    lines = [f"## Checks: {len(checks) - len(failed)} of {len(checks)} passed", format_table(header, rows)]
    if failed:
        lines.append("\n".join(f"- FAILED: {one['subject']}: {_details(one)}" for one in failed[:60]))
    return lines


def _details(check: dict[str, Any]) -> str:
    """What else a check has."""
    facts = [f"{key} {cell(check[key])}" for key in ("width", "error", "tolerance") if check.get(key) is not None]
    return ", ".join([*facts, *(check[key] for key in ("case", "said") if check.get(key))]) or "-"


def _rates(rates: dict[str, Any]) -> Iterable[str]:
    if not rates:
        return []
    rows = [
        [
            str(rate["row_bytes"]),
            "L2" if rate["resident"] else "memory",
            cell(rate["gathered_gb_s"]),
            cell(rate["index_select_gb_s"]),
        ]
        for rate in rates.get("gather", [])
    ]
    gemm = ", ".join(f"{key.split('_')[0]} {cell(rate)}" for key, rate in rates.get("gemm", {}).items())
    lines = ["## Rates", f"Copy {cell(rates.get('copy_gb_s'))} GB/s, read and written. GEMM, TFLOP/s: {gemm or '-'}."]
    if rows:
        lines.append(format_table(["bytes a row", "table in", "gathered GB/s", "index_select GB/s"], rows))
    return lines


def _hits(hits: dict[str, Any]) -> Iterable[str]:
    if not hits:
        return []
    title = "## Memory traffic by ncu"
    if "reason" in hits:
        return [title, f"Not read: {hits['reason']}"]
    rows = [
        [
            one["kernel"],
            one["launched"],
            str(one["width"]),
            *(cell(one.get(key)) for key in ("hit_rate_percent", "l1_hit_rate_percent")),
            *(
                cell(rate / 1e9 if isinstance(rate := one.get(key), float) else rate)
                for key in ("dram_bytes_per_second", "l2_bytes_per_second", "l1_bytes_per_second")
            ),
        ]
        for one in hits["launches"]
    ]
    header = ["kernel", "launched", "width", "L2 hits, %", "L1 hits, %", "DRAM GB/s", "L2 GB/s", "L1 GB/s"]
    return [title, format_table(header, rows)]


def _plan(plan: dict[str, Any], graphs: dict[str, Any]) -> Iterable[str]:
    """The planner's epochs, beside the one that was measured on one GPU."""
    if not plan:
        return []
    rows = []
    for name, options in plan.items():
        epochs = graphs.get(name, {}).get("epoch", [])
        measured = next((one["median_ms"] for one in epochs if one["preset"] == "full" and not one["dropout"]), None)
        for option in options:
            found = cell(measured) if option["world_size"] == 1 else "-"
            rows.append([name, str(option["world_size"]), option["predicted_epoch"], found])
    return ["## The plan beside the measurement", format_table(["graph", "GPUs", "planned", "measured, ms"], rows)]


def _reproduced(pages: dict[str, str]) -> Iterable[str]:
    lines = []
    for target, text in pages.items():
        lines += [f"## Reproduced: {target}", "\n".join(f"> {line}".rstrip() for line in text.splitlines())]
    return lines


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
