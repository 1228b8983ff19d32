"""The names that OGB lists in the folder ``mapping``: what the nodes and the classes of a dataset are called elsewhere.

A file has a header and then, line by line, the id of a node or a class and its name, an integer or a text:

- of ogbn-arxiv ``nodeidx2paperid.csv.gz`` (``node idx,paper id``) and ``labelidx2arxivcategeory.csv.gz``, spelt like
  this (``label idx,arxiv category``); of ogbn-papers100M the former, too;
- of ogbn-products ``nodeidx2asin.csv.gz`` (``node idx,asin``) and ``labelidx2productcategory.csv.gz`` (``label
  idx,product category``), in which one class has no name;
- of ogbn-proteins ``nodeidx2proteinid.csv.gz`` (``node idx,protein id``) and ``labelidx2GO.csv.gz``;
- of ogbn-mag ``paper_entidx2name.csv.gz`` (``ent idx,ent name``), with the like of the other kinds of nodes, and
  ``labelidx2venuename.csv.gz``.
"""

import logging
from pathlib import Path

import numpy as np

from fullgnn.errors import DataError, quoted
from fullgnn.graph.checks import first_line
from fullgnn.graph.datasets.csv_numbers import num_columns
from fullgnn.graph.datasets.named import as_integers
from fullgnn.graph.datasets.words import texts_of
from fullgnn.graph.node_names import NodeNames
from fullgnn.telemetry.machine import check_fits

log = logging.getLogger(__name__)

_PER_BYTE = 40  # bytes of memory, at most, that a byte of a packed file takes


def name_files(folder: Path, kind: str) -> list[Path]:
    """The files of ``mapping`` that are read: one with the names of the nodes, and one of the classes if there is one.

    Args:
        kind: of the nodes, where the dataset has several; empty: it has one.

    Raises:
        DataError: there is none with the names of the nodes, or several.
    """
    pattern = f"{kind}_entidx2name.csv.gz" if kind else "nodeidx2*.csv.gz"
    of_nodes, of_classes = (sorted((folder / "mapping").glob(one)) for one in (pattern, "labelidx2*.csv.gz"))
    if len(of_nodes) != 1:
        raise DataError(
            f"{folder / 'mapping'} has {len(of_nodes)} files {pattern}, and the names of the nodes are in one:"
            " set dataset.names=false"
        )
    return of_nodes + (of_classes if len(of_classes) == 1 else [])


def read_names(file: Path, count: int, cure: str) -> NodeNames:
    """(count,) the names in a file of ``mapping``, in the order of the ids, each of which is there once.

    Raises:
        DataError: the file is damaged, or lists other ids.
    """
    import pyarrow  # imported here: most datasets need none of it
    import pyarrow.csv

    check_fits(_PER_BYTE * file.stat().st_size, str(file), "take a machine with more memory")
    columns = [f"f{column}" for column in range(num_columns(file, cure))]
    reading = pyarrow.csv.ReadOptions(use_threads=False, skip_rows=1, column_names=columns)
    # All names are read as texts, since the zeros before a number, as in an ASIN, belong to its name.
    converting = pyarrow.csv.ConvertOptions(column_types={"f1": pyarrow.large_string()})
    try:
        with pyarrow.input_stream(str(file), compression="gzip") as stream:
            table = pyarrow.csv.read_csv(stream, reading, convert_options=converting)
        if table.num_columns < 2 or table.schema.types[0] != pyarrow.int64():
            raise ValueError("its first two columns are no ids and names")
        ids, texts = (table.column(column).combine_chunks() for column in (0, 1))
        if ids.null_count:
            raise ValueError("an id is missing")
    except (OSError, ValueError) as error:  # those of Arrow are among them
        raise DataError(f"{file} cannot be read ({quoted(first_line(error))}): {cure}") from error
    numbers = as_integers(texts)
    found = texts_of(texts) if numbers is None else numbers
    order = np.argsort(ids.to_numpy(), kind="stable")
    if not np.array_equal(ids.to_numpy()[order], np.arange(count)):
        raise DataError(f"{file} must have the ids 0 to {count - 1} once each: {cure}")
    return found[order]


def class_names_of(file: Path, num_classes: int, cure: str) -> list[str] | None:
    """The names in a file of classes; None, and a line in the log, if it does not have one for each of them."""
    try:
        names = read_names(file, num_classes, cure)
    except DataError as error:
        log.info("the classes have no names: %s", error)
        return None
    return [str(name) for name in names.tolist()]
