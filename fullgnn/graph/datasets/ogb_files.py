"""The files of a node property prediction dataset of OGB (Hu et al., 2020), as its package ``ogb`` leaves them on disk.

The folder ``ogbn_arxiv`` of ``ogbn-arxiv`` holds ``raw`` and ``split``, in one of two layouts. Files of text have no
header, numbers between commas, and are packed by gzip:

- text: ``raw/num-node-list.csv.gz`` and ``raw/num-edge-list.csv.gz``, one number each; ``raw/edge.csv.gz``, a source
  and a target a line; ``raw/node-label.csv.gz``; and, of some datasets, ``raw/node-feat.csv.gz``,
  ``raw/edge-feat.csv.gz``, and ``raw/node_species.csv.gz``, which is called ``species.csv.gz`` in the archive. Where
  nodes are of several kinds, as in ``ogbn-mag``, these files are in folders, see ``ogb_kinds.py``;
- binary: ``raw/data.npz`` with ``num_nodes_list``, ``num_edges_list``, ``edge_index`` (2, E), and ``node_feat`` or
  ``edge_feat`` or both; ``raw/node-label.npz`` with ``node_label``.

A label that is empty or NaN is not known. ``split/NAME/train.csv.gz``, ``valid.csv.gz`` and ``test.csv.gz`` have a node
a line; of several kinds of nodes, they are in a folder of the kind. If there is ``split/NAME/split_dict.pt``, a file of
``torch.save`` with a dictionary of the three arrays, or of a dictionary of arrays by kind each, it is read in their
place, as by the package. ``ogb_names.py`` reads ``mapping``; other files, such as ``node_year.csv.gz``, are not read.
"""

from pathlib import Path
from typing import Any

import numpy as np

from fullgnn.errors import ConfigError, DataError
from fullgnn.graph.datasets import ogb_kinds
from fullgnn.graph.datasets.csv_numbers import read_numbers
from fullgnn.graph.datasets.given_files import existing
from fullgnn.graph.datasets.ogb_kinds import Kinds
from fullgnn.graph.datasets.ogb_raw import UNPACK_AGAIN, BinaryRaw, Raw, TextRaw
from fullgnn.graph.datasets.torch_dict import read_torch_dict
from fullgnn.graph.parts import MASKS, masks_of_ids

SPECIES = ("node_species.csv.gz", "species.csv.gz")
SPLIT_DICT = "split_dict.pt"


def folder_of(name: str, root: str) -> Path:
    """The folder in which the package ``ogb`` puts a dataset."""
    return Path(root).expanduser() / name.replace("-", "_")


def files_of(name: str, root: str, split_name: str | None) -> list[Path]:
    """The files that are read: first those of ``raw``, then that of the split, or its three.

    Raises:
        ConfigError: there are several splits, and ``split_name`` chooses none.
        DataError: a file is missing.
    """
    folder = folder_of(name, root)
    raw, kind = folder / "raw", ""
    if (raw / "data.npz").is_file():
        found = [raw / "data.npz", raw / "node-label.npz"]
    elif (raw / ogb_kinds.FILES[0]).is_file():
        kinds = Kinds.open(raw)
        found, kind = kinds.files(), kinds.kind
    else:
        found = [raw / f"{one}.csv.gz" for one in ("num-node-list", "num-edge-list", "edge", "node-label")]
        more = (raw / one for one in ("node-feat.csv.gz", "edge-feat.csv.gz", *SPECIES))
        found += [file for file in more if file.is_file()]
    cure = (
        f"set dataset.root to the folder in which the package ogb has put {folder.name}, the root of its"
        f" NodePropPredDataset(name={name!r}, root=...)"
    )
    return existing(found, cure) + _split_files(folder, split_name, kind)


def _split_files(folder: Path, split_name: str | None, kind: str) -> list[Path]:
    split = folder / "split"
    names = sorted(one.name for one in split.iterdir() if one.is_dir()) if split.is_dir() else []
    if split_name is None and len(names) > 1:
        raise ConfigError(f"{split} has several splits: set dataset.split_name to one of {', '.join(names)}")
    chosen = split / (split_name or (names[0] if names else ""))
    if (chosen / SPLIT_DICT).is_file():
        return [chosen / SPLIT_DICT]
    there = f"there are the splits {', '.join(names)}; " if names else ""
    return existing((chosen / kind / f"{part}.csv.gz" for part in MASKS), f"{there}{UNPACK_AGAIN}")


def raw_of(files: list[Path]) -> Raw:
    """The graph in the ``files`` of ``files_of``."""
    raw = files[0].parent
    if files[0].name == "data.npz":
        return BinaryRaw(raw)
    return Kinds.open(raw).graph() if _are_of_kinds(files) else TextRaw.open(raw)


def kind_of(files: list[Path]) -> str:
    """The kind of the nodes in the ``files`` of ``files_of``; empty: there is one."""
    return Kinds.open(files[0].parent).kind if _are_of_kinds(files) else ""


def _are_of_kinds(files: list[Path]) -> bool:
    return files[0].name == ogb_kinds.FILES[0]


def masks_of(files: list[Path], num_nodes: int, kind: str) -> dict[str, np.ndarray]:
    """The masks of the split in the ``files`` of ``files_of``.

    Args:
        kind: of the nodes; empty: there is one.
    """
    parts: dict[str, tuple[object, Any]] = {}
    if files[-1].name == SPLIT_DICT:
        given = read_torch_dict(files[-1], UNPACK_AGAIN)
        for part in MASKS:
            key = f"{part}/{kind}" if kind else part
            if key not in given:
                raise DataError(f"{files[-1]} has no array {key!r}: {UNPACK_AGAIN}")
            parts[part] = files[-1], given[key]
    else:
        for part, file in zip(MASKS, files[-len(MASKS) :], strict=True):
            parts[part] = file, read_numbers(file, np.int64, (None, 1), UNPACK_AGAIN)[:, 0]
    return masks_of_ids(parts, num_nodes, UNPACK_AGAIN)


def species_of(files: list[Path], num_nodes: int | None) -> np.ndarray:
    """(num_nodes,) int64, the species of each node, in the ``files`` of ``files_of``; None: of any number of nodes.

    Raises:
        DataError: there is no file of species.
    """
    found = [file for file in files if file.name in SPECIES]
    if not found:
        raise DataError(f"no file {files[0].parent / SPECIES[0]}: the nodes of this dataset have no species")
    return read_numbers(found[0], np.int64, (num_nodes, 1), UNPACK_AGAIN)[:, 0]
