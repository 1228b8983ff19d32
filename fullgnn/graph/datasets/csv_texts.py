"""Small CSV files with a header, whose cells are kept as texts; cells in quotes may have commas and line ends."""

from pathlib import Path
from typing import Any

from fullgnn.errors import DataError, quoted
from fullgnn.graph.checks import first_line
from fullgnn.telemetry.machine import check_fits

_PER_BYTE = 16  # bytes of memory, at most, that a byte of text takes


def read_texts(file: Path) -> dict[str, Any]:
    """The columns of a CSV file by their names, each a pyarrow large_string.

    Raises:
        DataError: the file cannot be read, has no row, a row of another length, or a column twice.
    """
    import pyarrow
    from pyarrow import csv

    check_fits(_PER_BYTE * file.stat().st_size, str(file), "take a machine with more memory")
    text = pyarrow.large_string()
    parse = csv.ParseOptions(newlines_in_values=True)
    try:
        header = csv.open_csv(file, csv.ReadOptions(use_threads=False), parse).schema.names
        if len(set(header)) < len(header):
            raise DataError(f"{file} has two columns of the same name in {quoted(', '.join(header))}: rename one")
        types = dict.fromkeys(header, text)
        convert = csv.ConvertOptions(column_types=types, strings_can_be_null=False, check_utf8=True)
        table = csv.read_csv(file, csv.ReadOptions(use_threads=False), parse, convert)
    except (OSError, UnicodeDecodeError, pyarrow.ArrowException) as error:
        reason = getattr(error, "strerror", None) or quoted(first_line(error))
        raise DataError(f"{file} cannot be read ({reason}): write it again, as CSV with a header") from error
    if not table.num_rows:
        raise DataError(f"{file} has no row: write a header, and a row for each node or edge")
    return {name: _whole(table.column(name)) for name in header}


def column_of(table: dict[str, Any], name: str, file: Path, key: str = "") -> Any:
    """The column ``name``.

    Args:
        key: the key of the dataset that names it; empty: the layout does.

    Raises:
        DataError: there is none.
    """
    if name not in table:
        cure = f"set dataset.{key} to one of them" if key else "name it so in the first line"
        raise DataError(f"{file} has no column {quoted(name)!r}, only {quoted(', '.join(table))}: {cure}")
    return table[name]


def _whole(column: Any) -> Any:
    """A pyarrow array, from its start, of a column in pieces."""
    import pyarrow

    return pyarrow.concat_arrays(column.chunks)
