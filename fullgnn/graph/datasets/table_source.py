"""Tables that are read in pieces of some rows: Parquet and CSV files, and tables in the memory of Python.

pyarrow reads all of them. The values of a column come as one of these kinds, whatever the table stores:

    integer    int64
    text       Arrow's large texts; integers in decimals
    number     float64, or float32 if the table has it so
    stored     as the table has them; a CSV file has texts
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from os import PathLike
from pathlib import Path
from typing import Any

from fullgnn.errors import DataError, message_of, quoted

TEXTS = ("string", "large_string", "string_view")
"""The names of Arrow's types of texts."""
ROWS_AT_ONCE = 1 << 20
_BYTES_AT_ONCE = 1 << 20  # of a file; pyarrow's reader of CSV holds dozens of such blocks
_HEADERS_AT_ONCE = 64  # a block of a CSV file has room for rows that are so many times as long as the header
_MOST_HEADER = 1 << 24
_COMPRESSED = (".gz", ".bz2", ".zst")
_PARQUET = (".parquet", ".parq", ".pq")


class WrongValue(DataError):
    """A value of a table is not of the kind that is asked for."""

    def __init__(self, message: str, kind: str, column: str):
        super().__init__(message)
        self.of_id = kind == "integer"
        """Whether an integer was asked for: the id of a node or of a feature, which may be a text."""
        self.column = column


@dataclass(frozen=True, eq=False)
class TablePiece:
    """Some rows of a table."""

    source: "Source"
    first: int  # number of the first row, from 0
    columns: Mapping[str, Any]  # Arrow arrays by name

    def where(self, row: int, column: str) -> str:
        """The start of a message on a value: its table, row and column. Rows count from 1, below the header."""
        return f"{self.source.name}, row {self.first + row + 1}, column {quoted(column)}"


class Source:
    """A table with a ``name`` for messages. Its ``types`` are Arrow's by column, or None for those of a CSV file."""

    name: str
    types: Mapping[str, Any]
    num_rows: int | None = None
    """None: it is not known before all are read."""

    def pieces(self, kinds: Mapping[str, str]) -> Iterator[TablePiece]:
        """The rows, piece by piece, of the columns in ``kinds``.

        Raises:
            DataError: the table cannot be read.
            WrongValue: a value is not of the kind of its column.
        """
        first = 0
        for batch in self._batches(kinds):
            arrays = {name: batch.column(batch.schema.get_field_index(name)) for name in kinds}
            yield TablePiece(
                self, first, {name: self._of_kind(array, name, kinds[name]) for name, array in arrays.items()}
            )
            first += batch.num_rows

    def _batches(self, kinds: Mapping[str, str]) -> Iterator[Any]:
        raise NotImplementedError

    def _of_kind(self, array: Any, name: str, kind: str) -> Any:
        """The values of a column as Arrow's type for ``kind``."""
        import pyarrow
        import pyarrow.compute

        if pyarrow.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        wanted = {"integer": pyarrow.int64(), "number": pyarrow.float64(), "text": pyarrow.large_string()}.get(kind)
        if wanted is None or array.type == wanted or (kind == "number" and array.type == pyarrow.float32()):
            return array
        types = pyarrow.types
        is_text = str(array.type) in TEXTS
        is_number = types.is_integer(array.type) or types.is_null(array.type)
        is_number |= kind == "number" and (types.is_floating(array.type) or types.is_boolean(array.type))
        if not (is_number or (kind == "text" and is_text)):
            what = "ids, which are integers or texts" if kind == "integer" else f"{kind}s"
            raise DataError(
                f"{self.name}, column {quoted(name)} has the type {quoted(array.type)}, and not {what}: convert it"
                " or choose another column"
            )
        try:
            return array.cast(wanted, safe=kind != "number")
        except pyarrow.ArrowException as error:
            line = f"{self.name}, column {quoted(name)}: {quoted(message_of(error))}"
            raise WrongValue(line, kind, name) from error

    def _describe(self, names: list[str], types: Iterable[Any], num_rows: int | None = None) -> None:
        """Keep what is known of the table, whose columns must have different names."""
        again = sorted({name for name in names if names.count(name) > 1})
        if again:
            raise DataError(f"{self.name} has two columns {quoted(again[0])}: give each column a name of its own")
        if not names:
            raise DataError(f"{self.name} has no column: write it again")
        self.types, self.num_rows = dict(zip(names, types)), num_rows


class ParquetSource(Source):
    """A Parquet file, read by row group."""

    def __init__(self, path: Path):
        self.name, self._path = str(path), path
        with _reading(self.name), self._open() as file:
            schema, num_rows = file.schema_arrow, file.metadata.num_rows
        self._describe(schema.names, schema.types, num_rows)

    def _open(self) -> Any:
        import pyarrow.parquet

        # By default, all that is read of the file would stay in memory until its end.
        return pyarrow.parquet.ParquetFile(self._path, memory_map=False, buffer_size=_BYTES_AT_ONCE, pre_buffer=False)

    def _batches(self, kinds: Mapping[str, str]) -> Iterator[Any]:
        with _reading(self.name), self._open() as file:
            yield from file.iter_batches(batch_size=ROWS_AT_ONCE, columns=list(kinds))


class CsvSource(Source):
    """A CSV file with a header, plain or compressed, read in blocks.

    Args:
        delimiter: between columns; None: a tab for .tsv, otherwise the one of ``, ; |`` and tab that stands most often
            in the header.
    """

    def __init__(self, path: Path, delimiter: str | None):
        import pyarrow

        self.name, self._path = str(path), path
        with _reading(self.name), pyarrow.input_stream(str(path), compression="detect") as stream:
            header = stream.read(_MOST_HEADER).partition(b"\n")[0]
        self._block = max(_BYTES_AT_ONCE, min(_HEADERS_AT_ONCE * len(header), _MOST_HEADER))
        guessed = "\t" if ".tsv" in path.suffixes else max(",\t;|", key=lambda char: header.count(char.encode()))
        self._delimiter = delimiter or guessed
        with _reading(self.name), self._open({}) as reader:
            names = reader.schema.names
        self._describe(names, repeat(None))

    def _open(self, kinds: Mapping[str, str], threads: bool = True) -> Any:
        import pyarrow
        import pyarrow.csv

        types = {"integer": pyarrow.int64(), "number": pyarrow.float64()}
        return pyarrow.csv.open_csv(
            self._path,
            pyarrow.csv.ReadOptions(block_size=self._block, use_threads=threads),
            pyarrow.csv.ParseOptions(delimiter=self._delimiter, newlines_in_values="text" in kinds.values()),
            pyarrow.csv.ConvertOptions(
                column_types={name: types.get(kind, pyarrow.large_string()) for name, kind in kinds.items()},
                include_columns=list(kinds),
                null_values=["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"],
            ),
        )

    def _batches(self, kinds: Mapping[str, str]) -> Iterator[Any]:
        import pyarrow

        try:
            with self._open(kinds) as reader:
                yield from reader
        except (OSError, pyarrow.ArrowException) as error:
            raise self._explained(kinds, error) from error

    def _explained(self, kinds: Mapping[str, str], error: BaseException) -> DataError:
        """What is wrong, with the row, which only a reader on one thread names."""
        import pyarrow

        try:
            with self._open(kinds, threads=False) as reader:
                for _ in reader:
                    pass
        except (OSError, pyarrow.ArrowException) as again:
            error = again
        message, kind, column = message_of(error), "", ""
        for place, name in enumerate(kinds):
            if f"CSV column #{place}:" in message:
                message = message.replace(f"CSV column #{place}:", f"column {name}:")
                kind, column = kinds[name], name
        line = f"{self.name} cannot be read ({quoted(message)}): correct the file"
        return WrongValue(line, kind, column) if kind else DataError(line)


class MemorySource(Source):
    """A table of pandas, polars, pyarrow, or of another library that has ``__arrow_c_stream__``."""

    def __init__(self, table: Any, name: str):
        import pyarrow

        self.name = name
        try:
            self._table = table if isinstance(table, pyarrow.Table) else pyarrow.table(table)
        except (TypeError, ValueError, pyarrow.ArrowException) as error:
            raise DataError(
                f"{name} cannot be read as a table ({quoted(message_of(error))}): pass a file, or a table of pandas,"
                " polars or pyarrow"
            ) from error
        self._describe(self._table.column_names, self._table.schema.types, len(self._table))

    def _batches(self, kinds: Mapping[str, str]) -> Iterator[Any]:
        yield from self._table.select(list(kinds)).to_batches(max_chunksize=ROWS_AT_ONCE)


def open_source(path: Path, delimiter: str | None) -> Source:
    """The table in a file, whose suffix says what it is: .parquet, or else text.

    Raises:
        DataError: the file cannot be read.
    """
    return ParquetSource(path) if path.suffix in _PARQUET else CsvSource(path, delimiter)


def sources_of(tables: Any, name: str) -> list[Source]:
    """One table, or a list of them, in memory or in files.

    Raises:
        DataError: one cannot be read.
    """
    some = list(tables) if isinstance(tables, (list, tuple)) else [tables]
    sources: list[Source] = []
    for number, table in enumerate(some):
        if isinstance(table, (str, PathLike)):
            path = Path(table)
            if not path.is_file():
                raise DataError(f"no file {path.absolute()}: pass {name}, a table or a file of one")
            sources.append(open_source(path, None))
        else:
            sources.append(MemorySource(table, name if len(some) == 1 else f"{name}[{number}]"))
    return sources


def stem_of(path: Path) -> str:
    """A name for a graph, from a file of its edges."""
    name = path.name
    for suffix in (*_COMPRESSED, ".csv", ".tsv", ".txt", *_PARQUET):
        name = name.removesuffix(suffix)
    return name or "table"


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Turn what pyarrow raises on a damaged file into a ``DataError``."""
    import pyarrow

    try:
        yield
    except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"{name} cannot be read ({quoted(message_of(error))}): write it again") from error
