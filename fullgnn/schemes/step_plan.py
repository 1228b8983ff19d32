"""The plan of a product on one rank: the rows that it receives in each step, from whom, and who reads its own rows.

Every rank computes its own plan without communication; the plans of two ranks match, since both follow the table of
transports, which every rank computes alike (``product_layout.py``). Rows arrive in one of two ways:

    stages   step t brings the rows of the t-th stage of this rank; they travel while the previous stage is multiplied
    pieces   step 0 has this rank's own rows; step 1 + g brings those of other ranks for the stages of group g
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from scipy.sparse import csr_array, hstack
from torch import Tensor

from fullgnn.schemes.pieces import Pieces
from fullgnn.schemes.product_layout import BROADCAST, HALO, OWN, ProductLayout, RowDistribution


@dataclass(frozen=True, eq=False)
class HeldRows:
    """The rows of one step that one rank holds."""

    rank: int  # the holder
    index: Tensor | None  # (num,) int64, the holder's local rows; None: all
    where: slice  # position of these rows among those that arrive in the step


@dataclass(frozen=True, eq=False)
class Reader:
    """A rank that reads rows of this one in some step."""

    rank: int
    part: int  # its block row
    index: Tensor | None  # (num_read,) int64, this rank's rows that it reads; None: all


@dataclass(eq=False)
class StepPlan:
    """How the rows of one step reach this rank."""

    transport: int  # OWN, BROADCAST, WHOLE or HALO; steps that bring rows of several blocks have HALO
    source: int  # block column whose rows arrive; -1: those of several, or none
    columns: list[tuple[int, np.ndarray | None]]  # for each stage in this step: its position, and the ascending columns
    # of its matrix whose rows arrive; None: all
    num_rows: int  # number of rows that arrive
    parts: list[HeldRows] = field(default_factory=list)  # the rows of each holder, if rows travel point to point

    def matrix(self, matrices: list[csr_array]) -> csr_array:
        """The matrix that multiplies the rows of this step.

        Args:
            matrices: one for each stage of this rank, (m, rows of the source block).

        Returns:
            (m, num_rows), whose columns are in the order in which the rows arrive.
        """
        from fullgnn.graph._csr_cpu import select  # imported here, since it imports numba

        chosen = [
            matrices[stage] if columns is None else select(matrices[stage], columns=columns)
            for stage, columns in self.columns
        ]
        return chosen[0] if len(chosen) == 1 else csr_array(hstack(chosen, format="csr"))


class StepPlans:
    """The plan of a product on the rank (part, replica) of a (b, r) mesh.

    Args:
        halo: for each of this rank's stages, the (num_read,) ascending rows of the source block that this rank reads.
            Those that other ranks hold are its halo rows.
        boundary: for each block row, the ascending int64 boundary rows of this rank that the block row reads. Only
            those of block rows with the transport HALO are used.
        device: where the indices are needed.
    """

    def __init__(
        self,
        product: ProductLayout,
        place: tuple[int, int],
        halo: list[np.ndarray],
        boundary: list[np.ndarray],
        device: torch.device,
    ):
        self._product, self._device = product, device
        self._part, self._replica = place
        self._replication = len(product.stages)
        self.rank = self._part * self._replication + self._replica
        self._rows: RowDistribution = product.in_rows
        sources = product.sources(self._part, self._replica)
        pieces = product.pieces
        self.steps = self._staged(sources, halo) if pieces is None else self._grouped(sources, halo, pieces)
        self.holders = [self._holders(step) for step in self.steps]
        """For each step, the rows that arrive by their holder, however they travel."""
        self.readers = self._readers(boundary)
        """For each step of the product, the other ranks that read rows of this one."""

    def _staged(self, sources: list[int], halo: list[np.ndarray]) -> list[StepPlan]:
        steps = []
        for position, (source, read) in enumerate(zip(sources, halo)):
            transport = self._transport(source)
            columns = read if transport == HALO else None
            num_rows = self._rows.block_size(source) if columns is None else len(columns)
            step = StepPlan(transport, source, [(position, columns)], num_rows)
            if transport not in (OWN, BROADCAST):
                step.parts.extend(self._parts(source, columns, 0))
            steps.append(step)
        return steps

    def _grouped(self, sources: list[int], halo: list[np.ndarray], pieces: Pieces) -> list[StepPlan]:
        if not sources:
            return []
        own = self._rows.own(self._part, self._replica)
        nothing = np.empty(0, np.int64)
        first, groups = StepPlan(HALO, -1, [(0, nothing)], 0), [StepPlan(HALO, -1, [], 0) for _ in pieces.slices]
        # Rows that travel side by side arrive in the order of the ranks that hold them.
        places = sorted(range(len(sources)), key=sources.__getitem__) if pieces.packed else range(len(sources))
        for position in places:
            source, read, rest = sources[position], halo[position], groups[pieces.groups[position]]
            columns = read if self._transport(source) == HALO else np.arange(self._rows.block_size(source))
            if source == self._part:
                first = StepPlan(OWN, source, [(position, np.arange(own.start, own.stop))], own.stop - own.start)
                columns = columns[(columns < own.start) | (columns >= own.stop)]
            rest.columns.append((position, columns))
            rest.parts.extend(self._parts(source, columns, rest.num_rows))
            rest.num_rows += len(columns)
        return [first, *groups[: pieces.groups[len(sources) - 1] + 1]]

    def _transport(self, source: int) -> int:
        return int(self._product.transports[self._part, source])

    def _parts(self, source: int, columns: np.ndarray | None, begin: int) -> list[HeldRows]:
        """The holders of the rows ``columns`` of block ``source`` (None: all), which arrive from place ``begin`` on."""
        parts = []
        for rank, held in self._rows.holders(source, self._replica, self._replication):
            index, where = None, held
            if columns is not None:
                first, stop = np.searchsorted(columns, [held.start, held.stop]).tolist()
                chosen, where = columns[first:stop] - held.start, slice(first, stop)
                every = len(chosen) == held.stop - held.start
                index = None if every and self._product.pieces is not None else self._tensor(chosen)
            if where.stop > where.start:
                parts.append(HeldRows(rank, index, slice(begin + where.start, begin + where.stop)))
        return parts

    def _holders(self, step: StepPlan) -> list[HeldRows]:
        if step.transport == OWN:
            return [HeldRows(self.rank, None, slice(0, step.num_rows))] if step.num_rows else []
        return self._parts(step.source, None, 0) if step.transport == BROADCAST else step.parts

    def _readers(self, boundary: list[np.ndarray]) -> list[list[Reader]]:
        product, own = self._product, self._rows.num_own(self._part, self._replica)
        readers: list[list[Reader]] = [[] for _ in range(product.num_steps)]
        for part, index in enumerate(boundary):
            transport = product.transports[part, self._part]
            if transport == OWN:
                continue
            replica, step = product.reader(part, self._part)
            rank = part * self._replication + replica
            holds = self._rows.num_slices > 1 or replica == self._replica
            if rank == self.rank or not holds or not (len(index) if transport == HALO else own):
                continue
            readers[step].append(Reader(rank, part, self._tensor(index) if transport == HALO else None))
        return readers

    def _tensor(self, index: np.ndarray) -> Tensor:
        return torch.from_numpy(index).to(self._device)
