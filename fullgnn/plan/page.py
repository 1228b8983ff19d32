"""Plans as Markdown, and a prediction beside what was measured."""

from collections.abc import Callable, Iterable, Mapping

from fullgnn.plan.hardware import Hardware
from fullgnn.plan.search import Option
from fullgnn.storage.record import RunRecord
from fullgnn.telemetry.table import format_table, num_bytes

Cell = Callable[[Option], str]

COLUMNS: dict[str, Cell] = {
    "p": lambda option: str(option.world_size),
    "scheme": lambda option: option.scheme,
    "r": lambda option: str(option.replication),
    "exchange": lambda option: option.exchange,
    "order": lambda option: option.order,
    "kernel": lambda option: option.kernel,
    "memory a rank": lambda option: num_bytes(option.prediction.peak_tensor_bytes),
    "fits": lambda option: "yes" if option.prediction.fits else "no",
}
TIMES: dict[str, Cell] = {
    "epoch ms": lambda option: f"{option.prediction.epoch_time_ms:.2f}",
    "spmm ms": lambda option: f"{option.prediction.time_ms['spmm']:.2f}",
    "comm ms": lambda option: f"{option.prediction.time_ms['comm']:.2f}",
    "dense ms": lambda option: f"{option.prediction.time_ms['dense']:.2f}",
    "other ms": lambda option: f"{option.prediction.time_ms['other']:.2f}",
}
SCALING: dict[str, Cell] = {
    "Epoch, ms (* does not fit)": lambda option: (
        f"{option.prediction.epoch_time_ms:.1f}" + ("" if option.prediction.fits else " *")
    ),
    "Waiting for data, ms": lambda option: f"{option.prediction.time_ms['comm']:.1f}",
    "Memory a rank": lambda option: num_bytes(option.prediction.peak_tensor_bytes),
    "Received a rank and epoch": lambda option: num_bytes(sum(option.prediction.comm_bytes_per_epoch.values())),
}


def page(found: list[Option], chosen: Option | None, fallback: Option | None, hardware: Hardware, command: str) -> str:
    """Every option, by number of ranks and predicted time; the best is marked.

    Args:
        chosen: the best option that fits; None: no option fits.
        fallback: then, the smallest job that was found to fit.
    """
    received = {
        f"{name} a rank": lambda option, name=name: num_bytes(option.prediction.comm_bytes_per_epoch.get(name, 0))
        for name in sorted({name for option in found for name in option.prediction.comm_bytes_per_epoch})
    }
    mark = {"": lambda option: "best" if option is chosen else ""}
    ranked = sorted(found, key=lambda option: (option.world_size, option.prediction.epoch_time_ms))
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
        _table({**COLUMNS, **received, **TIMES, **mark}, ranked),
        "",
        verdict,
        f"Command: {command}",
    ]
    return "\n".join(lines)


def scaling_page(found: list[Option], hardware: Hardware, command: str) -> str:
    """Epoch, memory and bytes over the number of ranks, 1D beside 1.5D, and where they cross."""
    replications = sorted({option.replication for option in found})
    sizes = sorted({option.world_size for option in found})
    at = {(option.world_size, option.replication): option for option in found}
    header = ["p", *("1D" if r == 1 else f"1.5D r={r}" for r in replications)]
    lines = [f"Planned, not measured, on {hardware.name} ({hardware.source}).", ""]
    for title, cell in SCALING.items():
        rows = [[str(p), *(cell(at[p, r]) if (p, r) in at else "-" for r in replications)] for p in sizes]
        lines += [f"### {title}", "", format_table(header, rows), ""]

    def epoch_ms(p: int, r: int) -> float:
        return at[p, r].prediction.epoch_time_ms

    for r in replications[1:]:
        faster = [str(p) for p in sizes if (p, r) in at and (p, 1) in at and epoch_ms(p, r) < epoch_ms(p, 1)]
        lines.append(f"1.5D r={r} is ahead of 1D at p = {', '.join(faster) or 'none of these'}.")
    return "\n".join([*lines, f"Command: {command}"])


def comparison_table(record: RunRecord) -> str:
    """What was predicted for a run beside what was measured, and their ratio."""
    predicted = record.predicted
    assert predicted is not None
    expected_bytes, received = predicted["comm_bytes_per_epoch"], record.comm_bytes_per_epoch

    def ms(value: float) -> str:
        return f"{value:.2f} ms"

    rows = [
        ("epoch", predicted["epoch_time_ms"], record.epoch_time_ms["median"], ms),
        *(
            (f"  {phase}", value, getattr(record, f"{phase}_time_ms"), ms)
            for phase, value in predicted["time_ms"].items()
        ),
        *(
            (f"received per rank and epoch, {name}", expected_bytes.get(name, 0), received.get(name, 0), num_bytes)
            for name in sorted({*expected_bytes, *received})
        ),
        ("peak tensor memory", predicted["peak_tensor_bytes"], record.peak_tensor_bytes, num_bytes),
    ]
    return format_table(
        (f"by hardware={predicted['hardware']}", "predicted", "measured", "ratio"),
        [
            [title, show(expected), show(measured), f"{expected / measured:.2f}" if measured else "-"]
            for title, expected, measured, show in rows
        ],
    )


def _table(columns: Mapping[str, Cell], options: Iterable[Option]) -> str:
    return format_table(list(columns), [[cell(option) for cell in columns.values()] for option in options])
