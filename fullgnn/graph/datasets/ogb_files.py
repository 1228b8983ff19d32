"""The files of a node property prediction dataset of OGB (Hu et al., 2020), as its package ``ogb`` leaves them on disk.

The folder ``ogbn_arxiv`` of ``ogbn-arxiv`` holds ``raw`` and ``split``, in one of two layouts. Files of text have no
header, numbers between commas, and are packed by gzip:

- text: ``raw/num-node-list.csv.gz`` and ``raw/num-edge-list.csv.gz``, one number each; ``raw/edge.csv.gz``, a source
  and a target a line; ``raw/node-label.csv.gz``; and, of some datasets, ``raw/node-feat.csv.gz``,
  ``raw/edge-feat.csv.gz``, and ``raw/node_species.csv.gz``, which is called ``species.csv.gz`` in the archive. Where
  nodes are of several kinds, as in ``ogbn-mag``, these files are in folders, see
  ``ogb_raw.py``;
- binary: ``raw/data.npz`` with ``num_nodes_list``, ``num_edges_list``, ``edge_index`` (2, E), and ``node_feat`` or
  ``edge_feat`` or both; ``raw/node-label.npz`` with ``node_label``.

A label that is empty or NaN is not known. ``split/NAME/train.csv.gz``, ``valid.csv.gz`` and ``test.csv.gz`` have a node
a line; of several kinds of nodes, they are in a folder of the kind. If there is ``split/NAME/split_dict.pt``, a file of
``torch.save`` with a dictionary of the three arrays, or of a dictionary of arrays by kind each, it is read in their
place, as by the package. ``read_names`` reads ``mapping``; other files, such as ``node_year.csv.gz``, are not read.

In ``mapping`` are names: what the nodes and the classes of a dataset are called elsewhere. A file has a header and
then, line by line, the id of a node or a class and its name, an integer or a text:

- of ogbn-arxiv ``nodeidx2paperid.csv.gz`` (``node idx,paper id``) and ``labelidx2arxivcategeory.csv.gz``, spelt like
  this (``label idx,arxiv category``); of ogbn-papers100M the former, too;
- of ogbn-products ``nodeidx2asin.csv.gz`` (``node idx,asin``) and ``labelidx2productcategory.csv.gz`` (``label
  idx,product category``), in which one class has no name;
- of ogbn-proteins ``nodeidx2proteinid.csv.gz`` (``node idx,protein id``) and ``labelidx2GO.csv.gz``;
- of ogbn-mag ``paper_entidx2name.csv.gz`` (``ent idx,ent name``), with the like of the other kinds of nodes, and
  ``labelidx2venuename.csv.gz``.
"""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fullgnn.errors import ConfigError, DataError
from fullgnn.graph.checks import reading
from fullgnn.graph.datasets.csv_numbers import num_columns, read_numbers
from fullgnn.graph.datasets.given_files import existing
from fullgnn.graph.datasets.named import as_integers
from fullgnn.graph.datasets.ogb_raw import FILES_OF_KINDS, UNPACK_AGAIN, BinaryRaw, Kinds, Raw, TextRaw
from fullgnn.graph.datasets.torch_dict import read_torch_dict
from fullgnn.graph.datasets.words import texts_of
from fullgnn.graph.masks import MASK_OF_PART, masks_of_ids
from fullgnn.graph.node_names import NodeNames
from fullgnn.telemetry.machine import check_fits

SPECIES = ("node_species.csv.gz", "species.csv.gz")
SPLIT_DICT = "split_dict.pt"
_PER_BYTE = 40  # bytes of memory, at most, that a byte of a packed file takes

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OgbFolder:
    """The files of a dataset that are read, all of which are there."""

    folder: Path
    raw: list[Path]
    split: list[Path]
    """The one file of ``torch.save``, or the three of the parts."""
    kinds: Kinds | None
    """None: the nodes are of one kind."""

    @classmethod
    def open(cls, name: str, root: str, split_name: str | None) -> "OgbFolder":
        """The folder in which the package ``ogb`` has put the dataset ``name``.

        Raises:
            ConfigError: there are several splits, and ``split_name`` chooses none.
            DataError: a file is missing.
        """
        folder = Path(root).expanduser() / name.replace("-", "_")
        raw, kinds = folder / "raw", None
        if (raw / "data.npz").is_file():
            paths = [raw / "data.npz", raw / "node-label.npz"]
        elif (raw / FILES_OF_KINDS[0]).is_file():
            kinds = Kinds(raw)
            paths = kinds.files()
        else:
            paths = [raw / f"{stem}.csv.gz" for stem in ("num-node-list", "num-edge-list", "edge", "node-label")]
            more = (raw / file_name for file_name in ("node-feat.csv.gz", "edge-feat.csv.gz", *SPECIES))
            paths += [file for file in more if file.is_file()]
        cure = (
            f"set dataset.root to the folder in which the package ogb has put {folder.name}, the root of its"
            f" NodePropPredDataset(name={name!r}, root=...)"
        )
        return cls(folder, existing(paths, cure), _split_files(folder, split_name, kinds), kinds)

    def graph(self) -> Raw:
        """The graph in the files of ``raw``."""
        if self.kinds is not None:
            return self.kinds.graph()
        raw = self.folder / "raw"
        return BinaryRaw(raw) if self.raw[0].name == "data.npz" else TextRaw.of_one_kind(raw)

    def masks(self, num_nodes: int) -> dict[str, np.ndarray]:
        """The masks of the split."""
        parts: dict[str, tuple[object, Any]] = {}
        if len(self.split) == 1:
            (file,) = self.split
            given = read_torch_dict(file, UNPACK_AGAIN)
            for part in MASK_OF_PART:
                key = part if self.kinds is None else f"{part}/{self.kinds.kind}"
                if key not in given:
                    raise DataError(f"{file} has no array {key!r}: {UNPACK_AGAIN}")
                parts[part] = file, given[key]
        else:
            for part, file in zip(MASK_OF_PART, self.split, strict=True):
                parts[part] = file, read_numbers(file, np.int64, (None, 1), UNPACK_AGAIN)[:, 0]
        return masks_of_ids(parts, num_nodes, UNPACK_AGAIN)

    def species(self, num_nodes: int | None) -> np.ndarray:
        """(num_nodes,) int64, the species of each node; None: of any number of nodes.

        Raises:
            DataError: there is no file of species.
        """
        of_species = [file for file in self.raw if file.name in SPECIES]
        if not of_species:
            raise DataError(f"no file {self.folder / 'raw' / SPECIES[0]}: the nodes of this dataset have no species")
        return read_numbers(of_species[0], np.int64, (num_nodes, 1), UNPACK_AGAIN)[:, 0]

    def names(self) -> list[Path]:
        """The files of ``mapping`` that are read: one with the names of the nodes, and one of the classes if there is
        one.

        Raises:
            DataError: there is none with the names of the nodes, or several.
        """
        mapping = self.folder / "mapping"
        pattern = "nodeidx2*.csv.gz" if self.kinds is None else f"{self.kinds.kind}_entidx2name.csv.gz"
        of_nodes, of_classes = (sorted(mapping.glob(wanted)) for wanted in (pattern, "labelidx2*.csv.gz"))
        if len(of_nodes) != 1:
            raise DataError(
                f"{mapping} has {len(of_nodes)} files {pattern}, and the names of the nodes are in one: set"
                " dataset.names=false"
            )
        return of_nodes + (of_classes if len(of_classes) == 1 else [])


def _split_files(folder: Path, split_name: str | None, kinds: Kinds | None) -> list[Path]:
    split = folder / "split"
    names = sorted(path.name for path in split.iterdir() if path.is_dir()) if split.is_dir() else []
    if split_name is None and len(names) > 1:
        raise ConfigError(f"{split} has several splits: set dataset.split_name to one of {', '.join(names)}")
    chosen = split / (split_name or (names[0] if names else ""))
    if (chosen / SPLIT_DICT).is_file():
        return [chosen / SPLIT_DICT]
    there = f"there are the splits {', '.join(names)}; " if names else ""
    chosen = chosen if kinds is None else chosen / kinds.kind
    return existing((chosen / f"{part}.csv.gz" for part in MASK_OF_PART), f"{there}{UNPACK_AGAIN}")


def read_names(file: Path, count: int, cure: str) -> NodeNames:
    """(count,) the names in a file of ``mapping``, in the order of the ids, each of which is there once.

    Raises:
        DataError: the file is damaged, or lists other ids.
    """
    import pyarrow  # imported here: most datasets need none of it
    import pyarrow.csv

    check_fits(_PER_BYTE * file.stat().st_size, str(file), "take a machine with more memory")
    columns = [f"f{column}" for column in range(num_columns(file, cure))]
    options = pyarrow.csv.ReadOptions(use_threads=False, skip_rows=1, column_names=columns)
    # All names are read as texts, since the zeros before a number, as in an ASIN, belong to its name.
    converting = pyarrow.csv.ConvertOptions(column_types={"f1": pyarrow.large_string()})
    with reading(file, cure, OSError, ValueError):  # those of Arrow are among them
        with pyarrow.input_stream(str(file), compression="gzip") as stream:
            table = pyarrow.csv.read_csv(stream, options, convert_options=converting)
        if table.num_columns < 2 or table.schema.types[0] != pyarrow.int64():
            raise ValueError("its first two columns are no ids and names")
        ids, texts = (table.column(column).combine_chunks() for column in (0, 1))
        if ids.null_count:
            raise ValueError("an id is missing")
    numbers = as_integers(texts)
    names = texts_of(texts) if numbers is None else numbers
    order = np.argsort(ids.to_numpy(), kind="stable")
    if not np.array_equal(ids.to_numpy()[order], np.arange(count)):
        raise DataError(f"{file} must have the ids 0 to {count - 1} once each: {cure}")
    return names[order]


def class_names_of(file: Path, num_classes: int, cure: str) -> list[str] | None:
    """The names in a file of classes; None, and a line in the log, if it does not have one for each of them."""
    try:
        names = read_names(file, num_classes, cure)
    except DataError as error:
        log.info("the classes have no names: %s", error)
        return None
    return [str(name) for name in names.tolist()]
