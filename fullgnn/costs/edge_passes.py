"""What a layer that reads edges one by one asks of its block in an epoch: which rows move, and what each edge reads.

The layer runs on a skeleton (``trace.py``), whose ``TracedHalo`` notes each movement. What the layer reads for an edge
is stated in its contract, and hooks note it before the layer's forward and backward pass.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fullgnn.costs.layout import PlannedLayout
from fullgnn.nn.contract import EdgeReads, RowReads, contract_of
from fullgnn.schemes.exchange import Exchange
from fullgnn.schemes.halo import Halo, Push, SentGradients
from fullgnn.schemes.packed_push import PackedPush
from fullgnn.schemes.product_layout import RowDistribution

FETCH, PUSH, TARGETS, SUM, MAXIMUM = "fetch", "push", "targets", "sum", "maximum"
COPIES, ALL, GATHERED = "copies", "all", "gathered"
ID_BYTES = 8


class Move(NamedTuple):
    """Rows on their way between ranks, or a tensor that ranks add up or gather."""

    kind: str
    """``fetch``, ``push``, ``targets`` (``Halo.gather_targets``), ``sum`` (``Halo.reduce``), ``maximum``; ``copies``
    (``Halo.sum_partial``), ``all`` (``Block.sum_over_rows``) and ``gathered`` (``Block.gather_partial``) are whole
    tensors."""
    row_bytes: int  # of the tensor, if the move is one of a whole tensor
    wire_bytes: int  # of a row as it travels

    def bytes_received(self, product: PlannedLayout) -> dict[str, np.ndarray]:
        """(b, r) int64 bytes, by collective, that each rank receives, as the meter counts them.

        Args:
            product: the rows of X and of the targets.
        """
        if self.kind == FETCH:
            return product.bytes_of_rows(self.wire_bytes)
        if self.kind == PUSH:
            return product.bytes_of_gradients(self.wire_bytes, self.row_bytes)
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
    reads: RowReads | None = None  # None: nothing but moves
    itemsize: int = 4  # bytes of a number

    @property
    def source_bytes(self) -> int:
        """What it reads of the source of an edge."""
        return 0 if self.reads is None else self.reads.sources * self.itemsize

    @property
    def target_bytes(self) -> int:
        """What it reads of the target of an edge."""
        return 0 if self.reads is None else self.reads.targets * self.itemsize

    @property
    def winner_bytes(self) -> int:
        """What it reads of the argmax of the target of an edge, see ``RowReads.winners``."""
        return 0 if self.reads is None else self.reads.winners * ID_BYTES

    @property
    def gathered_bytes(self) -> int:
        """What it reads for each edge, on a CPU."""
        return self.source_bytes + self.target_bytes

    def of_kind(self, kind: str) -> list[Move]:
        return [move for move in self.moves if move.kind == kind]


Event = tuple[str, Move] | RowReads
"""A move, with the name of the product that reads the same rows; or what a layer that begins a pass reads for an
edge."""


def passes_of(events: Iterable[Event], itemsize: int) -> list[EdgePass]:
    """Join the events of each pass over edges. The moves between two passes belong to the first of them; gradients
    that begin to travel, and rows that arrive, begin a pass, which has the reads that were noted last.

    Args:
        itemsize: bytes of a number.
    """
    found: list[EdgePass] = []
    reads: RowReads | None = None  # of the pass that a layer is about to begin
    for event in events:
        if isinstance(event, RowReads):
            reads = event
            continue
        name, move = event
        last = found[-1] if found else None
        begins = last is None or last.name != name
        if last is not None and move.kind in (FETCH, PUSH):
            pushes = bool(last.of_kind(PUSH)) and not last.of_kind(FETCH) and reads is None
            begins = not (move.kind == FETCH and pushes and last.name == name)
        if begins or last is None:
            last = EdgePass(name, itemsize=itemsize)
            found.append(last)
        if move.kind in (FETCH, PUSH) and reads is not None:
            last, reads = replace(last, reads=reads), None
        found[-1] = replace(last, moves=(*last.moves, move))
    return found


def note_reads(model: torch.nn.Module, events: list[Event]) -> None:
    """Have each layer of ``model`` that states what it reads for an edge append that to ``events``, before the moves of
    its forward pass, and before those of its backward pass."""
    for layer in model.modules():
        reads = contract_of(layer).edge_reads
        if reads is not None:
            _note_layer(layer, reads, events)


def _note_layer(layer: torch.nn.Module, reads: EdgeReads, events: list[Event]) -> None:
    def begin_forward(layer: torch.nn.Module, args: Any) -> None:
        events.append(reads.forward)

    def begin_backward(gradient: Tensor) -> None:
        events.append(reads.backward)

    def end_forward(layer: torch.nn.Module, args: Any, output: Tensor) -> None:
        if output.requires_grad:
            output.register_hook(begin_backward)

    layer.register_forward_pre_hook(begin_forward)
    layer.register_forward_hook(end_forward)


class TracedHalo(Halo):
    """RowExchange without other ranks that append what they are asked for to ``events``."""

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

    def sent_gradients(self) -> SentGradients:
        return SentGradients.alone(self.exchange)

    def _note(self, kind: str, rows: Tensor, wire_itemsize: int | None = None) -> None:
        width, itemsize = rows.shape[1], rows.element_size()
        self._events.append((self._name, Move(kind, width * itemsize, width * (wire_itemsize or itemsize))))
