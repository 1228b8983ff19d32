"""HTML. Text is escaped on its way into an element; only what was made here is not escaped again."""

import html
from collections.abc import Iterable, Mapping, Sequence


class Markup(str):
    """Text that is HTML already."""


VOID = {"img", "meta"}
"""Elements that have no end."""


def element(name: str, *children: str, **attributes: str) -> Markup:
    """``<name key="value">children</name>``; an underscore ends a key that is a word of Python, as in ``class_``."""
    opened = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(value)}"' for key, value in attributes.items()
    )
    if name in VOID:
        return Markup(f"<{name}{opened}>")
    return Markup(f"<{name}{opened}>{join(children)}</{name}>")


def join(children: Iterable[str]) -> Markup:
    return Markup("".join(child if isinstance(child, Markup) else html.escape(child) for child in children))


def paragraph(*children: str, **attributes: str) -> Markup:
    return element("p", *children, **attributes)


def side_by_side(figures: Iterable[Markup]) -> Markup:
    """Figures in as many columns as there is room for."""
    return element("div", *figures, class_="figures")


Rows = Sequence[Sequence[str]]
"""Cells of a table; the first of a row is its heading."""


def table(caption: str, header: Sequence[str], rows: Rows) -> Markup:
    """A table that scrolls by itself where the page is too narrow."""
    return _table(caption, header, _body(rows))


def parted_table(caption: str, header: Sequence[str], parts: Mapping[str, Rows]) -> Markup:
    """A table in parts, each with a heading of its own."""
    bodies = (
        _body(rows, element("tr", element("th", name, scope="rowgroup", colspan=str(len(header))), class_="part"))
        for name, rows in parts.items()
    )
    return _table(caption, header, *bodies)


def _body(rows: Rows, *heading: Markup) -> Markup:
    lines = (
        element("tr", element("th", row[0], scope="row"), *(element("td", cell) for cell in row[1:])) for row in rows
    )
    return element("tbody", *heading, *lines)


def _table(caption: str, header: Sequence[str], *bodies: Markup) -> Markup:
    head = element("thead", element("tr", *(element("th", cell, scope="col") for cell in header)))
    content = element("table", element("caption", caption), head, *bodies)
    return element("div", content, class_="scroll", tabindex="0", role="region", aria_label=caption)


LONG = 16
"""Rows of a table above which it is folded."""


def numbers(caption: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    """The table beneath a plot; folded where it is long."""
    content = table(caption, header, rows)
    if len(rows) <= LONG and len(header) <= LONG:
        return content
    return element("details", element("summary", f"{caption}, {len(rows)} rows"), content)
