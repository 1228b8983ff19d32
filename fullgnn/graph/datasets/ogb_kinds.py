"""A dataset of OGB whose nodes are of several kinds, such as ogbn-mag, of which the kind with labels is read.

A ``Graph`` has nodes of one kind. Of ogbn-mag these are the papers, and the arcs are their citations. The folder
``raw`` has the layout of text, spread over folders; names of kinds and relations have no comma:

- ``triplet-type-list.csv.gz``: a relation a line, source, relation and target, such as ``paper,cites,paper``;
- ``num-node-dict.csv.gz`` and ``nodetype-has-label.csv.gz``: a header with the kinds, and below it, for each of them,
  the number of its nodes, and ``True`` or ``False``;
- ``relations/SOURCE___RELATION___TARGET``: ``edge.csv.gz``, ids from 0 within a kind, and ``num-edge-list.csv.gz``;
- ``node-label/KIND/node-label.csv.gz`` and, of some kinds, ``node-feat/KIND/node-feat.csv.gz``.

The other files, such as ``edge_reltype.csv.gz`` and ``node_year.csv.gz``, are not read.
"""

import gzip
import re
import zlib
from dataclasses import dataclass
from pathlib import Path

from fullgnn.errors import DataError, quoted, reason_of
from fullgnn.graph.datasets.ogb_raw import UNPACK_AGAIN, TextRaw, read_count

FILES = ("triplet-type-list.csv.gz", "num-node-dict.csv.gz", "nodetype-has-label.csv.gz")
_MAX_BYTES = 1 << 20  # of the text in one of FILES; ogbn-mag has 160
_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}", re.ASCII)  # it names a folder
_SIZE = re.compile(r"[0-9]{1,18}", re.ASCII)


@dataclass(frozen=True)
class Kinds:
    """What the small files of a folder ``raw`` say of its kinds of nodes and of its relations."""

    raw: Path
    sizes: dict[str, int]  # the number of nodes of each kind
    kind: str  # that has labels
    relation: str  # its name, from nodes of this kind to nodes of this kind
    others: tuple[str, ...]  # the names of the other relations

    @classmethod
    def open(cls, raw: Path) -> "Kinds":
        """Read the small files.

        Raises:
            DataError: a file is missing or damaged; or several kinds have labels; or not just one relation joins nodes
                of the kind that has them.
        """
        list_file, size_file, label_file = (raw / name for name in FILES)
        relations = _rows(list_file)
        for relation in relations:
            if len(relation) != 3 or not all(map(_NAME.fullmatch, relation)):
                raise _wrong(list_file, relation, "source, relation and target")
        sizes, labelled = _by_kind(size_file, _SIZE, "numbers of nodes"), _by_kind(label_file, _BOOL, "True or False")
        with_labels = [kind for kind, has in labelled.items() if has == "True"]
        if len(with_labels) != 1 or with_labels[0] not in sizes:
            raise DataError(
                f"{label_file}: the kinds with labels are {', '.join(with_labels) or 'none'}, and a Graph has nodes of"
                f" one kind, which must be in {size_file.name}: {UNPACK_AGAIN}"
            )
        (kind,) = with_labels
        within = [relation for relation in relations if (relation[0], relation[2]) == (kind, kind)]
        if len(within) != 1:
            raise DataError(
                f"{list_file}: {len(within)} relations lead from {kind} to {kind}, and a Graph is read of one:"
                f" {UNPACK_AGAIN}"
            )
        others = tuple("___".join(relation) for relation in relations if relation != within[0])
        return cls(raw, {name: int(size) for name, size in sizes.items()}, kind, "___".join(within[0]), others)

    def files(self) -> list[Path]:
        """All files that ``graph`` reads; the first one is of a folder in this layout alone."""
        sizes = [self._of(relation) / "num-edge-list.csv.gz" for relation in (self.relation, *self.others)]
        label = self.raw / "node-label" / self.kind / "node-label.csv.gz"
        needed = [*(self.raw / name for name in FILES), *sizes, self._of(self.relation) / "edge.csv.gz", label]
        feature = self.raw / "node-feat" / self.kind / "node-feat.csv.gz"
        return needed + [one for one in (feature, self._of(self.relation) / "edge-feat.csv.gz") if one.is_file()]

    def graph(self) -> TextRaw:
        """The graph of the nodes that have labels."""
        return TextRaw(
            self.raw,
            self.sizes[self.kind],
            self._of(self.relation),
            self.raw / "node-label" / self.kind,
            self.raw / "node-feat" / self.kind,
            self.kind,
            {
                "other_relations": sum(read_count(self._of(one) / "num-edge-list.csv.gz") for one in self.others),
                "other_kinds": sum(self.sizes.values()) - self.sizes[self.kind],
            },
        )

    def _of(self, relation: str) -> Path:
        return self.raw / "relations" / relation


_BOOL = re.compile("True|False")


def _by_kind(file: Path, cell: re.Pattern[str], what: str) -> dict[str, str]:
    """The one cell of each kind, in a file with a header of kinds."""
    rows = _rows(file)
    if len(rows) != 2 or len(rows[0]) != len(rows[1]) or len(set(rows[0])) < len(rows[0]):
        raise DataError(f"{file} has {len(rows)} rows, and takes a header of kinds and a row below it: {UNPACK_AGAIN}")
    for row, pattern, wanted in zip(rows, (_NAME, cell), ("kinds of nodes", what)):
        if not all(map(pattern.fullmatch, row)):
            raise _wrong(file, row, wanted)
    return dict(zip(*rows, strict=True))


def _wrong(file: Path, row: list[str], what: str) -> DataError:
    return DataError(f"{file} has the row {quoted(','.join(row))!r}, and takes {what}: {UNPACK_AGAIN}")


def _rows(file: Path) -> list[list[str]]:
    """The cells of a small packed text, row by row; empty lines do not count.

    Raises:
        DataError: the file is missing, damaged or large.
    """
    try:
        with gzip.open(file, "rb") as stream:
            text = stream.read(_MAX_BYTES + 1)
        if len(text) > _MAX_BYTES:
            raise ValueError(f"it has more than {_MAX_BYTES} bytes of text")
        return [line.split(",") for line in text.decode().splitlines() if line.strip()]
    except FileNotFoundError as error:
        raise DataError(f"no file {file.resolve()}: {UNPACK_AGAIN}") from error
    except (EOFError, OSError, ValueError, zlib.error) as error:
        raise DataError(f"{file} cannot be read ({quoted(reason_of(error))}): {UNPACK_AGAIN}") from error
