"""What an epoch asks of the rows of the graph: passes over its edges, and the rows that move before, during and after.

A pass is a product, or a pass of a layer that reads edges one by one. The model runs on a skeleton (``trace.py``) whose
products and whose ``TracedHalo`` note each pass and each movement. What a layer reads for an edge is stated in its
contract, and hooks note it before the layer's forward and backward pass.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fullgnn.costs.layout import Move, MoveKind
from fullgnn.nn.contract import EdgeReads, RowReads, contract_of
from fullgnn.schemes.exchange import Exchange
from fullgnn.schemes.halo import Halo
from fullgnn.schemes.push import Push

ID_BYTES = 8


@dataclass(frozen=True)
class Pass:
    """A pass over the edges of a block, and what moves before, during and after it."""

    name: str  # of the product that reads the same rows, as in ``Layout``
    moves: tuple[Move, ...] = ()
    reads: RowReads | None = None  # None: nothing but moves
    itemsize: int = 4  # bytes of a number
    is_product: bool = False  # which reads a row of X for each edge

    @property
    def source_bytes(self) -> int:
        """What it reads of the source of an edge; of a product, a row of X."""
        return 0 if self.reads is None else self.reads.sources * self.itemsize

    @property
    def target_bytes(self) -> int:
        """What it reads of the target of an edge."""
        return 0 if self.reads is None else self.reads.targets * self.itemsize

    @property
    def winner_bytes(self) -> int:
        """What it reads of the argmax of the target of an edge, see ``RowReads.winners``."""
        return 0 if self.reads is None else self.reads.winners * ID_BYTES

    def has(self, kind: MoveKind) -> bool:
        """Whether it has a move of this ``kind``."""
        return any(move.kind == kind for move in self.moves)


@dataclass(eq=False)
class PassLog:
    """Notes the passes of an epoch.

    The moves between two passes over edges belong to the first of them; gradients that begin to travel, and rows that
    arrive, begin a pass, which has the reads that were stated last.
    """

    itemsize: int  # bytes of a number
    products: list[Pass] = field(default_factory=list)
    over_edges: list[Pass] = field(default_factory=list)
    stated: RowReads | None = None  # of the pass that a layer is about to begin

    def multiply(self, name: str, columns: int, wire_itemsize: int) -> None:
        """Note the product ``name`` with X of so many columns, each number of which travels in ``wire_itemsize``."""
        row_bytes = columns * self.itemsize
        moves = Move("fetch", row_bytes, columns * wire_itemsize), Move("sum", row_bytes, row_bytes)
        self.products.append(Pass(name, moves, RowReads(sources=columns), self.itemsize, is_product=True))

    def move(self, name: str, kind: MoveKind, row_bytes: int, wire_bytes: int | None = None) -> None:
        """Note a ``Move`` of the rows that the product ``name`` reads; ``wire_bytes`` are by default ``row_bytes``."""
        last, begins, travels = self.over_edges[-1:], True, kind in ("fetch", "push")
        if last and last[0].name == name:
            awaits_rows = last[0].has("push") and not last[0].has("fetch") and self.stated is None
            begins = travels and not (kind == "fetch" and awaits_rows)
        if begins:
            self.over_edges.append(Pass(name, itemsize=self.itemsize))
        of_pass = self.over_edges[-1]
        if travels and self.stated is not None:
            of_pass, self.stated = replace(of_pass, reads=self.stated), None
        made = Move(kind, row_bytes, row_bytes if wire_bytes is None else wire_bytes)
        self.over_edges[-1] = replace(of_pass, moves=(*of_pass.moves, made))

    def watch(self, model: torch.nn.Module) -> None:
        """Have each layer of ``model`` that says what it reads for an edge state that before the moves of its forward
        pass, and before those of its backward pass."""
        for layer in model.modules():
            reads = contract_of(layer).edge_reads
            if reads is not None:
                self._watch_layer(layer, reads)

    def _watch_layer(self, layer: torch.nn.Module, reads: EdgeReads) -> None:
        def begin_forward(layer: torch.nn.Module, args: Any) -> None:
            self.stated = reads.forward

        def begin_backward(gradient: Tensor) -> None:
            self.stated = reads.backward

        def end_forward(layer: torch.nn.Module, args: Any, output: Tensor) -> None:
            if output.requires_grad:
                output.register_hook(begin_backward)

        layer.register_forward_pre_hook(begin_forward)
        layer.register_forward_hook(end_forward)


class TracedHalo(Halo):
    """A row exchange without other ranks that has the moves of the rows of product ``name`` noted in ``log``."""

    def __init__(self, exchange: Exchange, name: str, log: PassLog):
        super().__init__(exchange)
        self._name, self._log = name, log

    def arrivals(self, x: Tensor) -> Iterator[Tensor | None]:
        self._note("fetch", x.shape[1], x, self._context.travelling_dtype(x))
        return super().arrivals(x)

    def push(self, width: int, like: Tensor) -> Push:
        made = super().push(width, like)
        self._note("push", width, like, self._context.travelling_dtype(like))
        return made

    def gather_targets(self, own: Tensor) -> Tensor:
        self._note("targets", own.shape[1], own, own.dtype)
        return super().gather_targets(own)

    def reduce(self, partial: Tensor) -> Tensor:
        self._note("sum", partial.shape[1], partial, partial.dtype)
        return super().reduce(partial)

    def maximum(self, partial: Tensor) -> Tensor:
        self._note("maximum", partial.shape[1], partial, partial.dtype)
        return super().maximum(partial)

    def sum_partial(self, tensor: Tensor) -> Tensor:
        self._log.move(self._name, "copies", tensor.nbytes)
        return super().sum_partial(tensor)

    def _note(self, kind: MoveKind, width: int, like: Tensor, wire_dtype: torch.dtype) -> None:
        self._log.move(self._name, kind, width * like.element_size(), width * wire_dtype.itemsize)
