"""Fold the help of a command to the columns of the screen."""

import re
from collections.abc import Iterator

from fullgnn.telemetry.screen import WIDTH, folded_command, wrap

LEAST_COMMENT = 30
"""Columns that a folded comment, or the right one of two columns, has at least beside what is left of it."""

_KEY = re.compile(r"[\w.]+:( |$)")
_COMMAND = re.compile(r"(python|torchrun) ")


def folded_help(text: str, width: int = WIDTH) -> str:
    """The ``text`` of a help with lines of at most ``width`` columns.

    It has paragraphs, indented commands, rows of two columns, and keys of a YAML with comments. A comment stays beside
    its key, in its column; lines that are no wider than ``width`` stay as they are, if their paragraph fits.
    """
    lines: list[str] = []
    for block in _blocks(text.split("\n")):
        lines += block if max(map(len, block)) <= width else _folded_block(block, width)
    return "\n".join(line.rstrip() for line in lines)


def _blocks(lines: list[str]) -> Iterator[list[str]]:
    """Lines that belong together: those of a paragraph, a comment of several lines, or one other line."""
    block: list[str] = []
    for line in lines:
        if block and not _continues(block, line):
            yield block
            block = []
        block.append(line)
    if block:
        yield block


def _continues(block: list[str], line: str) -> bool:
    """Whether ``line`` goes on with the sentence of the ``block`` before it."""
    if "#" in (line[:1], block[-1][:1]):
        return line[:1] == block[-1][:1]
    if re.match(r" +#", line):  # a comment below that of a key
        return "#" in block[0] and line.index("#") == _text_column(block[0])
    return _indent(line) == _indent(block[-1]) and _is_prose(block[0]) and _is_prose(line)


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _is_prose(line: str) -> bool:
    """Whether a line is part of a paragraph, and neither a key, nor a command, nor a row of two columns."""
    text = line.strip()
    return bool(text) and not (_KEY.match(text) or _COMMAND.match(text) or _text_column(line))


def _text_column(line: str) -> int:
    """Where the comment of a key, or the right one of two columns, begins; 0: there is none."""
    if match := re.match(r"[^#]*?\S +(?=# )", line):
        return match.end()
    match = re.match(r" *\S.*?  +(?=\S)", line)
    return match.end() if match else 0


def _folded_block(block: list[str], width: int) -> list[str]:
    first = block[0]
    indent = _indent(first)
    if _COMMAND.match(first.lstrip()):
        return folded_command(first.strip(), width, indent).split("\n")
    at = _text_column(first)
    mark = "# " if first.lstrip().startswith("#") or first[at:].startswith("# ") else ""
    begin = 0 if first.lstrip().startswith("#") else at
    text = " ".join(part.strip().removeprefix("#").strip() for part in (first[begin:], *block[1:]))
    left = first[:begin]
    if not begin:
        return wrap(text, width, initial_indent=indent + mark, subsequent_indent=indent + mark)
    if width - at >= LEAST_COMMENT:
        hanging = " " * at + mark
        return wrap(text, width, initial_indent=left + mark, subsequent_indent=hanging)
    below = f"{indent}    {mark}"
    return [left.rstrip(), *wrap(text, width, initial_indent=below, subsequent_indent=below)]
