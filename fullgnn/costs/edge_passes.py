"""What a layer that reads edges one by one asks of its block in an epoch: which rows move, and what each edge reads.

The layer runs on a skeleton (``trace.py``), whose ``TracedHalo`` notes each movement and each pass over edges.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from torch import Tensor

from fullgnn.schemes.edges import EdgeReads
from fullgnn.schemes.exchange import Exchange
from fullgnn.schemes.halo import Halo, Push, SentGradients
from fullgnn.schemes.packed_push import PackedPush
from fullgnn.schemes.rows import RowDistribution
from fullgnn.schemes.traffic import DistributedProduct

FETCH, PUSH, TARGETS, SUM, MAXIMUM = "fetch", "push", "targets", "sum", "maximum"
COPIES, ALL, GATHERED = "copies", "all", "gathered"


class Move(NamedTuple):
    """Rows on their way between ranks, or a tensor that ranks add up or gather."""

    kind: str
    """``fetch``, ``push``, ``targets`` (``Halo.gather_targets``), ``sum`` (``Halo.reduce``), ``maximum``; ``copies``
    (``Halo.sum_partial``), ``all`` (``Block.sum_over_rows``) and ``gathered`` (``Block.gather_partial``) are whole
    tensors."""
    row_bytes: int  # of the tensor, if the move is one of a whole tensor
    wire_bytes: int  # of a row as it travels

    def bytes_received(self, product: DistributedProduct, halo: np.ndarray | None) -> dict[str, np.ndarray]:
        """(b, r) int64 bytes, by collective, that each rank receives, as the meter counts them.

        Args:
            product: the rows of X and of the targets.
            halo: see ``DistributedProduct.rows_received``.
        """
        if self.kind == FETCH:
            return product.bytes_of_rows(halo, self.wire_bytes)
        if self.kind == PUSH:
            return product.bytes_of_gradients(halo, self.wire_bytes, self.row_bytes)
        if self.kind == TARGETS:
            return product.bytes_of_targets(self.row_bytes)
        if self.kind == SUM:
            return product.bytes_of_sums(self.row_bytes)
        if self.kind == MAXIMUM:
            return product.bytes_of_maxima(self.row_bytes)
        mesh = product.num_parts, len(product.stages)
        num_ranks = mesh[1] if self.kind == COPIES else mesh[0] * mesh[1]
        if self.kind == GATHERED:
            return {"gather": np.full(mesh, (mesh[0] * mesh[1] - 1) * self.row_bytes)}
        has_move = self.kind == ALL or product.out_rows.num_slices == 1
        each = 2 * (num_ranks - 1) * self.row_bytes // num_ranks if has_move else 0
        return {"all_reduce": np.full(mesh, each)}


@dataclass(frozen=True)
class EdgePass:
    """A pass of a layer over the edges of its block, and what moves before, during and after it."""

    name: str  # of the product that reads the same rows, as in ``Layout``
    moves: tuple[Move, ...] = ()
    reads: EdgeReads | None = None  # None: nothing but moves

    @property
    def gathered_bytes(self) -> int:
        """What it reads for each edge, on a CPU."""
        return 0 if self.reads is None else self.reads.of_sources + self.reads.of_targets

    def of_kind(self, kind: str) -> list[Move]:
        return [move for move in self.moves if move.kind == kind]


Event = tuple[str, Move | EdgeReads]
"""What a block was asked for, with the name of its product."""


def passes_of(events: Iterable[Event]) -> list[EdgePass]:
    """Join the events of each pass over edges. The moves between two passes belong to the first of them; gradients
    that begin to travel, and rows that arrive, begin a pass."""
    found: list[EdgePass] = []
    for name, event in events:
        last = found[-1] if found else None
        begins = last is None or last.name != name
        if last is not None and isinstance(event, Move) and event.kind in (FETCH, PUSH):
            pushes = bool(last.of_kind(PUSH)) and not last.of_kind(FETCH) and last.reads is None
            begins = not (event.kind == FETCH and pushes and last.name == name)
        if begins or last is None:
            last = EdgePass(name)
            found.append(last)
        joined = {"moves": (*last.moves, event)} if isinstance(event, Move) else {"reads": event}
        found[-1] = replace(last, **joined)
    return found


class TracedHalo(Halo):
    """Movements without other ranks that append what they are asked for to ``events``."""

    def __init__(self, exchange: Exchange, out_rows: RowDistribution, name: str, events: list[Event]):
        super().__init__(exchange, out_rows)
        self._name, self._events = name, events

    def arrivals(self, x: Tensor) -> Iterator[Tensor | None]:
        self._note(FETCH, x, self._context.travelling_dtype(x).itemsize)
        return super().arrivals(x)

    def push(self, width: int, like: Tensor) -> Push | PackedPush:
        made = super().push(width, like)
        wire_bytes = width * self._context.travelling_dtype(like).itemsize
        self._events.append((self._name, Move(PUSH, width * like.element_size(), wire_bytes)))
        return made

    def gather_targets(self, own: Tensor) -> Tensor:
        self._note(TARGETS, own)
        return super().gather_targets(own)

    def reduce(self, partial: Tensor) -> Tensor:
        self._note(SUM, partial)
        return super().reduce(partial)

    def maximum(self, partial: Tensor) -> Tensor:
        self._note(MAXIMUM, partial)
        return super().maximum(partial)

    def sum_partial(self, tensor: Tensor) -> Tensor:
        self._events.append((self._name, Move(COPIES, tensor.nbytes, tensor.nbytes)))
        return super().sum_partial(tensor)

    @contextmanager
    def edge_pass(self, reads: EdgeReads) -> Iterator[None]:
        if self._events[-1] != (self._name, reads):  # once for all stages
            self._events.append((self._name, reads))
        yield

    def sent_gradients(self) -> SentGradients:
        return SentGradients.alone(self.exchange)

    def _note(self, kind: str, rows: Tensor, wire_itemsize: int | None = None) -> None:
        width, itemsize = rows.shape[1], rows.element_size()
        self._events.append((self._name, Move(kind, width * itemsize, width * (wire_itemsize or itemsize))))
