"""Plans as Markdown."""

from fullgnn.costs.hardware import Hardware
from fullgnn.costs.search import Option
from fullgnn.telemetry.table import format_table, num_bytes


def page(found: list[Option], chosen: Option | None, fallback: Option | None, hardware: Hardware, command: str) -> str:
    """Every option, by number of ranks and predicted time; the best is marked.

    Args:
        chosen: the best option that fits; None: no option fits.
        fallback: then, the smallest job that was found to fit.
    """
    collectives = sorted({name for option in found for name in option.prediction.comm_bytes_per_epoch})
    ranked = sorted(found, key=lambda option: (option.world_size, option.prediction.epoch_time_ms))
    rows = [_cells(option, collectives) | {"": "best" if option is chosen else ""} for option in ranked]
    if chosen is not None:
        verdict = f"Best: {chosen.overrides}"
    elif fallback is not None:
        verdict = f"Nothing fits. The smallest that was found to: {fallback.overrides}"
    else:
        verdict = "Nothing fits, on any number of ranks that was tried: choose a machine with more memory."
    lines = [
        f"Planned, not measured: one training epoch on {hardware.name} ({hardware.source}).",
        f"Memory is that of tensors, of {num_bytes(hardware.memory_bytes)} a rank; bytes are what a rank receives, the "
        "mean; comm is what is not hidden.",
        "",
        format_table(list(rows[0]), [list(row.values()) for row in rows]),
        "",
        verdict,
        f"Command: {command}",
    ]
    return "\n".join(lines)


def _cells(option: Option, collectives: list[str]) -> dict[str, str]:
    """A line of the page, by heading."""
    predicted = option.prediction
    return {
        "p": str(option.world_size),
        "scheme": option.scheme,
        "r": str(option.replication),
        "exchange": option.exchange,
        "order": option.order,
        "kernel": option.kernel,
        "memory a rank": num_bytes(predicted.peak_tensor_bytes),
        "fits": "yes" if predicted.fits else "no",
        **{f"{name} a rank": num_bytes(predicted.comm_bytes_per_epoch.get(name, 0)) for name in collectives},
        "epoch ms": f"{predicted.epoch_time_ms:.2f}",
        **{f"{phase} ms": f"{ms:.2f}" for phase, ms in predicted.time_ms.items()},
    }


def scaling_page(found: list[Option], hardware: Hardware, command: str) -> str:
    """Epoch, memory and bytes over the number of ranks, 1D beside 1.5D, and where they cross."""
    at = {(option.world_size, option.replication): option for option in found}
    sizes, replications = (sorted(set(numbers)) for numbers in zip(*at))
    header = ["p", *("1D" if r == 1 else f"1.5D r={r}" for r in replications)]
    lines = [f"Planned, not measured, on {hardware.name} ({hardware.source}).", ""]
    cells = {place: _scaling_cells(option) for place, option in at.items()}
    for title in cells[1, 1]:
        rows = [[str(p), *(cells[p, r][title] if (p, r) in at else "-" for r in replications)] for p in sizes]
        lines += [f"### {title}", "", format_table(header, rows), ""]
    epoch_ms = {place: option.prediction.epoch_time_ms for place, option in at.items()}
    for r in replications[1:]:
        faster = [str(p) for p in sizes if (p, r) in at and epoch_ms[p, r] < epoch_ms[p, 1]]
        lines.append(f"1.5D r={r} is ahead of 1D at p = {', '.join(faster) or 'none of these'}.")
    return "\n".join([*lines, f"Command: {command}"])


def _scaling_cells(option: Option) -> dict[str, str]:
    """The cell of ``option`` in each table, by the title of the table."""
    predicted = option.prediction
    return {
        "Epoch, ms (* does not fit)": f"{predicted.epoch_time_ms:.1f}" + ("" if predicted.fits else " *"),
        "Waiting for data, ms": f"{predicted.time_ms['comm']:.1f}",
        "Memory a rank": num_bytes(predicted.peak_tensor_bytes),
        "Received a rank and epoch": num_bytes(sum(predicted.comm_bytes_per_epoch.values())),
    }
