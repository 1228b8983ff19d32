"""Plans as Markdown."""

import shlex
from collections.abc import Callable, Sequence

from fullgnn.costs.hardware import Hardware
from fullgnn.costs.predict import Prediction
from fullgnn.costs.search import Option
from fullgnn.telemetry.screen import folded, folded_command, format_narrow_table, format_table, num_bytes

WIDTH = 120
"""Most characters of a line of the page, but for those of commands."""
SPARSE_FEATURES = (
    "Features are planned as dense ones: where a run multiplies them as a sparse matrix, since few of their numbers are"
    " not 0 (optimizations.sparse_features), it takes less time and memory than planned here."
)
"""The note on a run that may do so."""
LEAST_IMPORTANT = ("dense", "spmm", "comm", "received", "exchange")
"""Headings of the columns that a narrow screen has no room for, in this order; the page in a file has all of them."""
SCALING_CELLS: dict[str, Callable[[Prediction], str]] = {
    "Epoch, ms (* does not fit)": lambda cost: f"{cost.epoch_time_ms:.1f}" + ("" if cost.fits else " *"),
    "Waiting for data, ms": lambda cost: f"{cost.time_ms['comm']:.1f}",
    "Memory a rank": lambda cost: num_bytes(cost.peak_tensor_bytes),
    "Received a rank and epoch": lambda cost: num_bytes(sum(cost.comm_bytes_per_epoch.values())),
}
"""The tables of a scaling page: their titles, and the cell of an option."""


def page(
    options: list[Option],
    named: Option | None,
    hardware: Hardware,
    command: str,
    run_keys: Sequence[str] = (),
    screen: int | None = None,
    note: str = "",
) -> str:
    """Every option, by number of ranks and predicted time; the best is marked. Equal options share a line,
    as the exchange ``any``.

    Args:
        named: the best option that fits; if none does, the smallest job that was found to fit; None: no job does.
        run_keys: keys of the run on the planner's command line.
        screen: columns of the screen on which the page is shown: some columns of the table may be missing there, and
            commands are folded. None: the page is that of the file.
        note: a sentence on what is not planned; empty: there is none.
    """
    ranked = sorted(options, key=lambda option: (option.world_size, option.prediction.epoch_time_ms))
    varied = [key for key in _CHOICES if len({getattr(option, key) for option in ranked}) > 1]
    lines: dict[tuple[str, ...], list[Option]] = {}
    for option in ranked:
        lines.setdefault(tuple(_cells(option, "", varied).values()), []).append(option)
    cells, every_exchange = list[dict[str, str]](), {option.exchange for option in ranked}
    for same in lines.values():
        exchanges = dict.fromkeys(option.exchange for option in same)
        exchange = "any" if 1 < len(exchanges) == len(every_exchange) else ", ".join(exchanges)
        cells.append(_cells(same[0], exchange, varied) | {"": "best" if named in same else ""})
    verdict = _folded("Nothing fits, on any number of ranks that was tried: choose a machine with more memory.", screen)
    if named is not None:
        heading = "Best" if named in options else "Nothing fits. The smallest that was found to"
        verdict = _with_command(heading, train_command(named, run_keys), screen)
    alone = "".join(f"; {key} {getattr(ranked[0], key)}" for key in _CHOICES if key not in varied)
    header, rows_of_table = list(cells[0]), [list(row.values()) for row in cells]
    table = format_table(header, rows_of_table)
    if screen is not None:
        table, lacking = format_narrow_table(header, rows_of_table, screen, LEAST_IMPORTANT)
        if lacking:
            table += "\n\n" + folded(f"plan.md also has the columns {', '.join(lacking[::-1])}.", screen)
    begin = [
        f"Planned, not measured: one epoch on {hardware.name} ({hardware.source}){alone}.",
        f"Memory is that of tensors, of {num_bytes(hardware.memory_bytes)} a rank; * does not fit. Received is the mean"
        " of the ranks. spmm, comm (what is not hidden) and dense are parts of the epoch, in ms.",
        note,
    ]
    begin = [folded(sentence, screen or WIDTH) for sentence in begin if sentence]
    return "\n".join([*begin, "", table, "", verdict, _with_command("Command", command, screen)])


def _folded(sentence: str, screen: int | None) -> str:
    """A sentence, folded to the columns of the ``screen``, if there is one."""
    return sentence if screen is None else folded(sentence, screen)


def _with_command(heading: str, command: str, screen: int | None) -> str:
    """A line with a command; on a ``screen`` that is too narrow, the command stands folded below its heading."""
    line = f"{heading}: {command}"
    if screen is None or len(line) <= screen:
        return line
    return f"{heading}:\n{folded_command(command, screen, '    ')}"


_CHOICES = ("order", "kernel")
"""What most plans do not vary, and is no column then."""


def train_command(option: Option, run_keys: Sequence[str]) -> str:
    """The command that runs ``option``, with what differs from the ``run_keys`` and the defaults."""
    defaults = ("scheme.exchange=auto", "kernel=auto", "reorder=none")
    chosen = [key for key in option.overrides.split() if key not in defaults]
    replaced = {key.partition("=")[0] for key in option.overrides.split()}
    kept = [key for key in run_keys if key.partition("=")[0] not in replaced]
    return shlex.join(["python", "-m", "fullgnn.train", *kept, *chosen])


def _cells(option: Option, exchange: str, varied: Sequence[str]) -> dict[str, str]:
    """The cells of a line by heading: what the option is called, with the choices that are ``varied``, and numbers."""
    predicted, replicas = option.prediction, "" if option.replication == 1 else f" r={option.replication}"
    return {
        "p": str(option.world_size),
        "scheme": f"{option.scheme}{replicas}",
        "exchange": exchange,
        **{key: getattr(option, key) for key in varied},
        "memory": num_bytes(predicted.peak_tensor_bytes) + ("" if predicted.fits else " *"),
        "received": num_bytes(sum(predicted.comm_bytes_per_epoch.values())),
        "epoch ms": f"{predicted.epoch_time_ms:.2f}",
        **{phase: f"{predicted.time_ms[phase]:.2f}" for phase in ("spmm", "comm", "dense")},
    }


def scaling_page(
    options: list[Option], hardware: Hardware, command: str, screen: int | None = None, note: str = ""
) -> str:
    """Epoch, memory and bytes over the number of ranks, 1D beside 1.5D, and where they cross.

    Args:
        screen, note: see ``page``.
    """
    costs = {(option.world_size, option.replication): option.prediction for option in options}
    sizes, replications = (sorted(set(numbers)) for numbers in zip(*costs))
    header = ["p", *("1D" if r == 1 else f"1.5D r={r}" for r in replications)]
    begin = f"Planned, not measured, on {hardware.name} ({hardware.source})."
    lines = [*(_folded(sentence, screen) for sentence in (begin, note) if sentence), ""]
    for title, cell in SCALING_CELLS.items():
        rows = [[str(p), *(cell(costs[p, r]) if (p, r) in costs else "-" for r in replications)] for p in sizes]
        lines += [f"### {title}", "", format_table(header, rows), ""]
    for r in replications[1:]:
        faster = [str(p) for p in sizes if (p, r) in costs and costs[p, r].epoch_time_ms < costs[p, 1].epoch_time_ms]
        lines.append(_folded(f"1.5D r={r} is ahead of 1D at p = {', '.join(faster) or 'none of these'}.", screen))
    return "\n".join([*lines, _with_command("Command", command, screen)])
