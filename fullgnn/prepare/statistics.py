"""Counts of the non-zeros of a prepared graph, for the record, the report and the planner: sums over its parts.

What is counted of a prepared graph in a cache is kept beside it, as ``statistics/<key>.npz``.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from scipy.sparse import csr_array, vstack

from fullgnn.graph import with_self_loops
from fullgnn.kernels.spmm.tiles import DENSITY_BINS, tile_density
from fullgnn.partition.folder import open_folder
from fullgnn.partition.prepared import PreparedGraph
from fullgnn.reorder.structure import Structure, cells
from fullgnn.storage.cache import Cache

log = logging.getLogger(__name__)

KIND = "statistics"
"""Folder, in the cache, of the statistics of prepared graphs."""


@dataclass(frozen=True, eq=False)
class Statistics:
    """What takes passes over the non-zeros to count. Only ``record.json`` and reports use it."""

    tile_density: dict[str, float]  # see ``RunRecord``
    structure: Structure

    def to_arrays(self) -> dict[str, np.ndarray]:
        """The statistics as arrays, from which ``from_arrays`` makes them again."""
        return {"tile_density": np.array(list(self.tile_density.values())), **vars(self.structure)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray]) -> "Statistics":
        """The statistics of which ``to_arrays`` has made ``arrays``."""
        shares = dict(zip(DENSITY_BINS, arrays["tile_density"].tolist(), strict=True))
        return cls(shares, Structure(**{field.name: arrays[field.name] for field in fields(Structure)}))


def statistics_of(prepared: PreparedGraph, self_loops: bool) -> Statistics:
    """The statistics of a prepared graph; of one that is kept in a cache, they are counted once."""
    if prepared.key and prepared.folder is not None:
        return kept_statistics(prepared.folder, self_loops)
    return count_statistics(prepared, self_loops)


def kept_statistics(folder: Path, self_loops: bool) -> Statistics:
    """The statistics of the prepared graph in a ``folder`` of a cache. They are counted once, and kept in that cache.

    Raises:
        DataError: the folder is missing or damaged.
    """
    cache = Cache(str(folder.parent.parent))
    key = cache.key(prepared=folder.name, self_loops=self_loops)
    if kept := cache.load(KIND, key, Statistics.from_arrays):
        return kept
    prepared = open_folder(folder)
    name, num_edges = prepared.facts.nodes.name, prepared.facts.num_edges
    log.info("counting where the %d non-zeros of %s are, once for all runs and reports: %s", num_edges, name, folder)
    statistics = count_statistics(prepared, self_loops)
    cache.store(KIND, key, statistics.to_arrays())
    return statistics


def count_statistics(prepared: PreparedGraph, self_loops: bool) -> Statistics:
    """Count the statistics of A, with its whole diagonal if ``self_loops``, one part after the other.

    The 32 x 32 tiles of a part begin at its first row, as those of the rank that multiplies it.
    """
    facts = prepared.facts
    density = np.zeros(len(DENSITY_BINS))
    for block_row in block_rows(prepared, self_loops):
        indptr, indices = (torch.from_numpy(array) for array in (block_row.indptr, block_row.indices))
        density += np.array(tile_density(indptr, indices, facts.num_nodes)) * block_row.nnz
    density /= max(1, facts.nnz(self_loops))
    return Statistics(dict(zip(DENSITY_BINS, density.tolist())), count_structure(prepared, self_loops))


def count_structure(prepared: PreparedGraph, self_loops: bool) -> Structure:
    """Count the non-zeros by position, before and after the reordering."""
    facts = prepared.facts
    grid = cells(facts.num_nodes)
    cell_of = np.repeat(np.arange(grid.num_parts, dtype=np.uint8), grid.sizes)
    node_id = np.concatenate([part.node_id for part in prepared.parts()])
    before, after = (np.zeros(grid.num_parts**2, np.int64) for _ in range(2))
    for number, part in enumerate(prepared.parts()):
        rows, first = part.rows, int(facts.partition.bounds[number])
        row = np.repeat(np.arange(first, first + rows.num_rows, dtype=np.int32), np.diff(rows.indptr))
        for counts, cell in ((before, cell_of[node_id]), (after, cell_of)):
            key = cell[row].astype(np.int16) * grid.num_parts + cell[rows.indices]
            counts += np.bincount(key, minlength=len(counts))
    shape = grid.num_parts, grid.num_parts
    block_nnz = facts.block_nnz(self_loops)
    return Structure(grid.bounds, before.reshape(shape), after.reshape(shape), facts.partition.bounds, block_nnz)


def block_rows(prepared: PreparedGraph, self_loops: bool) -> Iterator[csr_array]:
    """The block rows of A, with its whole diagonal if ``self_loops``, one after the other: (num_rows, num_nodes)."""
    facts = prepared.facts
    for number, part in enumerate(prepared.parts()):
        matrix = part.rows.matrix(facts.num_nodes)
        yield with_self_loops(matrix, int(facts.partition.bounds[number])) if self_loops else matrix


def whole_matrix(prepared: PreparedGraph, self_loops: bool) -> csr_array:
    """(num_nodes, num_nodes), all block rows."""
    return csr_array(vstack(list(block_rows(prepared, self_loops)), format="csr"))
