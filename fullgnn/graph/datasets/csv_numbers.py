"""Numbers in CSV files without a header, plain or packed by gzip, read some rows at a time by Arrow."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fullgnn.errors import DataError, quoted
from fullgnn.graph.checks import first_line, reading
from fullgnn.graph.growing import GrowingArray
from fullgnn.telemetry.machine import check_fits

_BLOCK = 1 << 22  # bytes of text that are read at once
_EMPTY = "Empty CSV file"  # how Arrow says that there is nothing


def number_blocks(file: Path, dtype: Any, columns: int, cure: str) -> Iterator[np.ndarray]:
    """The rows of a file, some after the others: (m, columns) of ``dtype``, which is int64 or float64. A field of a
    float that is empty or says NaN is NaN; empty lines do not count.

    Args:
        columns: how many numbers a row has.
        cure: ends the errors.

    Raises:
        DataError: the file cannot be read, or holds something else; the message has the row, from 1.
    """
    import pyarrow  # imported here: most datasets need none of it
    import pyarrow.csv

    packing = "gzip" if file.suffix == ".gz" else None
    names = [f"f{column}" for column in range(columns)]
    types = {name: pyarrow.from_numpy_dtype(dtype) for name in names}
    num_rows = 0
    try:
        options = pyarrow.csv.ReadOptions(column_names=names, block_size=_BLOCK, use_threads=False)
        parsing = pyarrow.csv.ParseOptions(quote_char=False)
        converting = pyarrow.csv.ConvertOptions(column_types=types, null_values=["", "nan", "NaN"])
        with (
            pyarrow.input_stream(str(file), compression=packing) as stream,
            pyarrow.csv.open_csv(stream, options, parsing, converting) as reader,
        ):
            for batch in reader:
                empty = [column for column in batch.columns if column.null_count] if dtype == np.int64 else []
                if empty:
                    row = num_rows + np.flatnonzero(empty[0].is_null().to_numpy(zero_copy_only=False))[0]
                    raise DataError(f"{file}: row {row + 1} lacks a number: {cure}")
                num_rows += batch.num_rows
                yield np.stack([column.to_numpy(zero_copy_only=False) for column in batch.columns], axis=1)
    except (OSError, ValueError) as error:  # those of Arrow are among them
        said = first_line(error)
        if isinstance(error, ValueError) and said.startswith(_EMPTY):
            return
        raise DataError(f"{file} cannot be read ({quoted(said)}): {cure}") from error


def read_numbers(
    file: Path, dtype: Any, shape: tuple[int | None, int | None], cure: str, as_dtype: Any = None
) -> np.ndarray:
    """(rows, columns), all of a file; see ``number_blocks``.

    Args:
        shape: how many rows and columns there must be; None: any number, of columns as many as the first row has.
        as_dtype: of the result; None: ``dtype``.

    Raises:
        DataError: the file is damaged, or has another number of rows, or more than fit into memory.
    """
    rows, width = shape[0], num_columns(file, cure) if shape[1] is None else shape[1]
    numbers = GrowingArray(as_dtype or dtype, (width,))
    for block in number_blocks(file, dtype, width, cure):
        end = numbers.length + len(block)
        if rows is not None and end > rows:
            raise DataError(f"{file} has more than {rows} rows: {cure}")
        room = rows or end
        num_bytes = room * width * numbers.space.itemsize
        check_fits(num_bytes, f"{file}: {room} rows", "take a machine with more memory, or correct the file")
        numbers.reserve(room)
        with np.errstate(over="ignore"):  # a float beyond ``as_dtype`` becomes infinite
            numbers.add(len(block))[:] = block
    if rows is not None and numbers.length < rows:
        raise DataError(f"{file} has {numbers.length} rows, and {rows} belong there: {cure}")
    return numbers.taken()


def num_columns(file: Path, cure: str) -> int:
    """The number of fields in the first line that is not empty; raises as ``number_blocks``."""
    import pyarrow

    with reading(file, cure, OSError):
        with pyarrow.input_stream(str(file), compression="gzip" if file.suffix == ".gz" else None) as stream:
            line = stream.read(_BLOCK).lstrip(b"\r\n").split(b"\n", 1)[0]
    return int(line.count(b",")) + 1
