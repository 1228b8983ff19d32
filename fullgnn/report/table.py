"""Plain tables that are also Markdown."""

from collections.abc import Sequence


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Align columns; the first to the left, the others to the right."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        padded = [cell.rjust(width) if k else cell.ljust(width) for k, (cell, width) in enumerate(zip(cells, widths))]
        return "| " + " | ".join(padded) + " |"

    rule = (
        "|"
        + "|".join(":" + "-" * (width + 1) if not k else "-" * (width + 1) + ":" for k, width in enumerate(widths))
        + "|"
    )
    return "\n".join([line(header), rule, *(line(row) for row in rows)])


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f} %"


def num_bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.2f} {unit}"
        count /= 1000
    raise AssertionError
