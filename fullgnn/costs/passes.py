"""What an epoch asks of the rows of the graph: passes over its edges, and the rows that move before, during and after.

A pass is a product, or a pass of a layer that reads edges one by one. The model runs on a skeleton (``trace.py``) whose
products and whose ``TracedHalo`` note each pass and each movement. What a layer reads for an edge is stated in its
contract, and hooks note it before the layer's forward and backward pass.
"""

from collections.abc import Callable
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
    source_bytes: int = 0
    """What it reads of the source of an edge; of a product, a row of X."""
    target_bytes: int = 0
    """What it reads of the target of an edge."""
    winner_bytes: int = 0
    """What it reads of the argmax of the target of an edge, see ``RowReads.winners``."""
    is_product: bool = False  # which reads a row of X for each edge


@dataclass(eq=False)
class PassLog:
    """Notes the passes of an epoch.

    The moves between two passes over edges belong to the first of them; gradients that begin to travel, and rows that
    arrive, begin a pass, which has the reads that were stated last.
    """

    itemsize: int  # bytes of a number
    products: list[Pass] = field(default_factory=list)
    over_edges: list[Pass] = field(default_factory=list)
    stated: dict[str, Any] = field(default_factory=dict)  # bytes that the pass reads which a layer is about to begin

    def multiply(self, name: str, columns: int, wire_itemsize: int) -> None:
        """Note the product ``name`` with X of so many columns, each number of which travels in ``wire_itemsize``."""
        row_bytes = columns * self.itemsize
        moves = Move("fetch", row_bytes, columns * wire_itemsize), Move("sum", row_bytes, row_bytes)
        self.products.append(Pass(name, moves, row_bytes, is_product=True))

    def move(self, name: str, kind: MoveKind, row_bytes: int, wire_bytes: int) -> None:
        """Note a ``Move`` of the rows that the product ``name`` reads."""
        last, travels = Pass("") if not self.over_edges else self.over_edges[-1], kind in ("fetch", "push")
        kinds = {move.kind for move in last.moves}
        awaits_rows = kind == "fetch" and "push" in kinds and "fetch" not in kinds and not self.stated
        if last.name != name or (travels and not awaits_rows):
            last = Pass(name)
            self.over_edges.append(last)
        if travels:
            last, self.stated = replace(last, **self.stated), {}
        self.over_edges[-1] = replace(last, moves=(*last.moves, Move(kind, row_bytes, wire_bytes)))

    def watch(self, model: torch.nn.Module) -> None:
        """Have each layer of ``model`` that says what it reads for an edge state that before the moves of its forward
        pass, and before those of its backward pass."""
        for layer in model.modules():
            reads = contract_of(layer).edge_reads
            if reads is not None:
                self._watch_layer(layer, reads)

    def _watch_layer(self, layer: torch.nn.Module, reads: EdgeReads) -> None:
        def end_forward(layer: torch.nn.Module, args: Any, output: Tensor) -> None:
            if output.requires_grad:
                output.register_hook(lambda gradient: self._state(reads.backward))

        layer.register_forward_pre_hook(lambda layer, args: self._state(reads.forward))
        layer.register_forward_hook(end_forward)

    def _state(self, reads: RowReads) -> None:
        sources, targets, winners = reads.sources * self.itemsize, reads.targets * self.itemsize, reads.winners
        self.stated = {"source_bytes": sources, "target_bytes": targets, "winner_bytes": winners * ID_BYTES}


def _noted(kind: MoveKind, moved: Callable[[Any, Tensor], Any]) -> Any:
    """A method of ``Halo`` that notes a move of this ``kind`` before it moves a tensor."""

    def noted(halo: "TracedHalo", tensor: Tensor) -> Any:
        halo.note(kind, tensor.shape[1] if kind != "copies" else tensor.numel(), tensor)
        return moved(halo, tensor)

    return noted


class TracedHalo(Halo):
    """A row exchange without other ranks that has the moves of the rows of product ``name`` noted in ``log``."""

    def __init__(self, exchange: Exchange, name: str, log: PassLog):
        super().__init__(exchange)
        self._name, self._log = name, log

    arrivals = _noted("fetch", Halo.arrivals)
    gather_targets = _noted("targets", Halo.gather_targets)
    reduce = _noted("sum", Halo.reduce)
    maximum = _noted("maximum", Halo.maximum)
    sum_partial = _noted("copies", Halo.sum_partial)

    def push(self, width: int, like: Tensor) -> Push:
        """See ``RowExchange``."""
        self.note("push", width, like)
        return super().push(width, like)

    def note(self, kind: MoveKind, width: int, like: Tensor) -> None:
        """Note a move of rows of ``width`` columns, or of a tensor of as many numbers, with the dtype of ``like``."""
        travels = kind in ("fetch", "push")
        wire_dtype = self._context.travelling_dtype(like) if travels else like.dtype
        self._log.move(self._name, kind, width * like.itemsize, width * wire_dtype.itemsize)
