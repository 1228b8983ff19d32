"""Plans as Markdown."""

from collections.abc import Callable

from fullgnn.plan.hardware import Hardware
from fullgnn.plan.search import Option
from fullgnn.telemetry.table import format_table, num_bytes

PHASES = ("spmm", "comm", "dense", "other")


def page(found: list[Option], chosen: Option | None, fallback: Option | None, hardware: Hardware, command: str) -> str:
    """Every option, by number of ranks and predicted time; the best is marked.

    Args:
        chosen: the best that fits; None: nothing does.
        fallback: then, the smallest job found that fits.
    """
    found = sorted(found, key=lambda option: (option.world_size, option.prediction.epoch_time_ms))
    collectives = sorted({name for option in found for name in option.prediction.comm_bytes_per_epoch})
    header = ["p", "scheme", "r", "exchange", "order", "kernel", "memory a rank", "fits"]
    header += [f"{name} a rank" for name in collectives] + ["epoch ms", *(f"{phase} ms" for phase in PHASES), ""]
    rows = []
    for option in found:
        prediction = option.prediction
        rows.append(
            [
                str(option.world_size),
                option.scheme,
                str(option.replication),
                option.exchange,
                option.order,
                option.kernel,
                num_bytes(prediction.peak_tensor_bytes),
                "yes" if prediction.fits else "no",
                *(num_bytes(prediction.comm_bytes_per_epoch.get(name, 0)) for name in collectives),
                f"{prediction.epoch_time_ms:.2f}",
                *(f"{prediction.time_ms[phase]:.2f}" for phase in PHASES),
                "best" if option is chosen else "",
            ]
        )
    lines = [
        f"Planned, not measured: one training epoch on {hardware.name} ({hardware.source}).",
        f"Memory is that of tensors, of {num_bytes(hardware.memory_bytes)} a rank; bytes are what a rank receives, the "
        "mean; comm is what is not hidden.",
        "",
        format_table(header, rows),
        "",
    ]
    if chosen is not None:
        lines.append(f"Best: {chosen.overrides}")
    elif fallback is not None:
        lines.append(f"Nothing fits. The smallest that was found to: {fallback.overrides}")
    else:
        lines.append("Nothing fits, on any number of ranks that was tried: choose a machine with more memory.")
    return "\n".join([*lines, f"Command: {command}"])


def scaling_page(found: list[Option], hardware: Hardware, command: str) -> str:
    """Epoch, memory and bytes over the number of ranks, 1D beside 1.5D, and where they cross."""
    replications = sorted({option.replication for option in found})
    sizes = sorted({option.world_size for option in found})
    at = {(option.world_size, option.replication): option for option in found}
    names = ["1D" if r == 1 else f"1.5D r={r}" for r in replications]

    def table(title: str, cell: Callable[[Option], str]) -> list[str]:
        rows = [[str(p), *(cell(at[p, r]) if (p, r) in at else "-" for r in replications)] for p in sizes]
        return [f"### {title}", "", format_table(["p", *names], rows), ""]

    lines = [f"Planned, not measured, on {hardware.name} ({hardware.source}).", ""]
    lines += table("Epoch, ms (* does not fit)", lambda o: _marked(f"{o.prediction.epoch_time_ms:.1f}", o))
    lines += table("Waiting for data, ms", lambda o: f"{o.prediction.time_ms['comm']:.1f}")
    lines += table("Memory a rank", lambda o: num_bytes(o.prediction.peak_tensor_bytes))
    lines += table("Received a rank and epoch", lambda o: num_bytes(sum(o.prediction.comm_bytes_per_epoch.values())))
    for r in replications[1:]:
        faster = [
            p
            for p in sizes
            if (p, r) in at and (p, 1) in at and at[p, r].prediction.epoch_time_ms < at[p, 1].prediction.epoch_time_ms
        ]
        lines.append(f"1.5D r={r} is ahead of 1D at p = {', '.join(map(str, faster)) or 'none of these'}.")
    return "\n".join([*lines, f"Command: {command}"])


def _marked(text: str, option: Option) -> str:
    return text if option.prediction.fits else f"{text} *"
