"""Fit texts to the screen: tables and the numbers in them, and commands and sentences folded to its columns."""

import functools
import math
import os
import re
import sys
import textwrap
from collections.abc import Sequence

import tabulate

tabulate.MIN_PADDING = 0  # of headers

WIDTH = 80
"""Columns of a terminal that does not tell them, and of every help."""
wrap = functools.partial(textwrap.wrap, break_long_words=False, break_on_hyphens=False)
"""Lines of a text; words, such as paths and keys, stay whole."""


def screen_width() -> int:
    """Columns of the terminal on which the log appears; ``WIDTH`` if there is none."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or WIDTH
    except (AttributeError, OSError, ValueError):  # stderr is a file, or has been replaced
        return WIDTH


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a Markdown table whose first column is aligned left and whose other columns are aligned right."""
    sides = ("left", *["right"] * (len(header) - 1))
    return tabulate.tabulate(
        rows,
        header,
        tablefmt="pipe",
        colalign=sides,
        disable_numparse=True,
        preserve_whitespace=True,  # rows that are parts of another row are indented
    )


def format_narrow_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], width: int, droppable: Sequence[str]
) -> tuple[str, list[str]]:
    """``format_table`` without those of the columns ``droppable``, the first ones first, for which there is no room.

    Returns:
        the table, and the headings of the columns that it lacks.
    """
    kept, lacking = list(range(len(header))), list[str]()
    candidates = [heading for heading in droppable if heading in header]
    while True:
        table = format_table([header[at] for at in kept], [[row[at] for at in kept] for row in rows])
        if table_width(table) <= width or not candidates:
            return table, lacking
        lacking.append(candidates.pop(0))
        kept.remove(list(header).index(lacking[-1]))


def table_width(table: str) -> int:
    """The number of characters of the longest line."""
    return max(map(len, table.splitlines()))


def percent(share: float | None) -> str:
    """A share in per cent; a dash for None."""
    return "-" if share is None else f"{100 * share:.2f} %"


def shares(parts: Sequence[float]) -> list[str]:
    """Each part as a percentage of the sum of all of them, rounded so that the percentages add up to 100 %."""
    sizes = [max(0.0, part) for part in parts]
    whole = sum(sizes)
    if not whole:
        return ["-"] * len(sizes)
    exact = [100 * size / whole for size in sizes]
    rounded = [math.floor(share) for share in exact]
    by_remainder = sorted(range(len(exact)), key=lambda index: rounded[index] - exact[index])
    for index in by_remainder[: 100 - sum(rounded)]:
        rounded[index] += 1
    return [f"{share} %" for share in rounded]


def num_bytes(count: float) -> str:
    """A number of bytes with a unit, as in ``1.25 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.2f} {unit}"
        count /= 1000
    raise AssertionError


def folded(sentence: str, width: int = WIDTH) -> str:
    """A sentence in lines of at most ``width`` columns, but for words that are longer."""
    return "\n".join(wrap(sentence, width))


def folded_command(command: str, width: int, indent: str = "") -> str:
    """A command of the shell in lines of at most ``width`` columns, which still is one command: it can be pasted.

    Spaces inside of quotes are kept together with the quoted text.
    """
    words = re.findall(r"(?:'[^']*'|\"[^\"]*\"|\\.|[^\s'\"\\])+", command)
    lines = [f"{indent}{words[0]}"]
    for word in words[1:]:
        if len(lines[-1]) + 1 + len(word) <= width - 2:  # room for the backslash
            lines[-1] += f" {word}"
        else:
            lines.append(f"{indent}    {word}")
    return " \\\n".join(lines)
