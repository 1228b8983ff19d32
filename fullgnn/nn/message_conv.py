"""A user's own message in plain torch, distributed and exact."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fullgnn.errors import UnsupportedError
from fullgnn.graph import EdgeSet
from fullgnn.kernels.edges.max_state import MaxState
from fullgnn.kernels.edges.reduce import add_largest, add_messages, check_aggregation, largest_backward
from fullgnn.nn.contract import Contract
from fullgnn.nn.edge_values import joined_maximum, own_maximum
from fullgnn.schemes.block import Block
from fullgnn.schemes.edges import EdgeChunk, Stage

CHUNK_EDGES = 1 << 13
"""Messages are computed for so many edges at a time."""


class MessageConv(torch.nn.Module):
    """Z_i = aggregate of message(x_j, x_i, edge value of j -> i) over the neighbours j of node i.

    Derive from it and write ``message`` in plain torch, with parameters of your own if you like. The sources' rows
    arrive stage by stage, and messages are computed for some edges at a time, in the backward pass once more: nothing
    is kept for an edge. Gradients reach x, the edge values and all parameters of the module.

    Args:
        aggregation: ``sum``, ``mean`` or ``max`` (of equal messages, the one from the lowest original id counts).
        self_loops: whether every node is its own neighbour too.

    Shapes:
        x: (num_sources, in_channels), output: (num_own_targets, F), 0 for a node without neighbours.

    Raises:
        ConfigError: another aggregation.
    """

    def __init__(self, aggregation: str = "sum", self_loops: bool = False):
        super().__init__()
        check_aggregation(aggregation)
        self.aggregation, self.edge_set = aggregation, EdgeSet(self_loops)
        self.num_columns: int | None = None  # F, known after the first call

    def contract(self) -> Contract:
        """See ``Contract``."""
        return Contract(edge_sets=(self.edge_set,))

    def message(self, x_source: Tensor, x_target: Tensor, edge_value: Tensor | None) -> Tensor:
        """The message of each edge. It depends on nothing but its arguments and the module's parameters: it is computed
        again in the backward pass, so it draws no random numbers.

        Args:
            x_source: (E, in_channels), rows of the edges' sources.
            x_target: (E, in_channels), rows of the edges' targets.
            edge_value: (E, ...) values of the edges; None: the edges have none.

        Returns:
            (E, F).
        """
        raise NotImplementedError

    def forward(self, x: Tensor, block: Block, edge_value: list[Tensor] | None = None) -> Tensor:
        """Return Z.

        Args:
            edge_value: for each of ``block.stages(self.edge_set)``, a (E, ...) tensor; None: the weights of the graph,
                (E, 1), if it has any.
        """
        stages = block.stages(self.edge_set)
        if edge_value is None:
            edge_value = [stage.csr.values[:, None] for stage in stages if stage.csr.values is not None]
        elif block.exchange.has_copies:
            _refuse_gradients(edge_value, x, block)
        assert len(edge_value) in (0, len(stages)), "edge_value has one tensor for each stage of this rank"
        targets = block.fetch_targets(block.at_targets(x))
        call = _Call(self, block, stages, len(edge_value))
        return _Aggregate.apply(call, x, targets, *edge_value, *self.parameters())


def _refuse_gradients(edge_value: list[Tensor], x: Tensor, block: Block) -> None:
    """Raise an error on every rank, also on one without stages and so without values, if values have gradients."""
    has_gradients = torch.tensor([[any(value.requires_grad for value in edge_value)]], device=x.device).int()
    if block.exchange.maximum(has_gradients).item():
        raise UnsupportedError(
            "edge values cannot have gradients where replicas hold the same rows: set scheme.split_rows=true, or"
            " compute the values inside message from parameters of the layer"
        )


@dataclass(frozen=True, eq=False)
class _Call:
    """One call of a ``MessageConv``."""

    conv: MessageConv
    block: Block
    stages: tuple[Stage, ...]
    num_values: int  # of the tensors of edge values: one for each stage, or none

    def width(self, x: Tensor, values: tuple[Tensor, ...]) -> int:
        """The number F of columns of a message. Ranks without stages learn it from their replicas, once."""
        if self.conv.num_columns is None:
            num_columns = 0
            if self.stages:
                nothing = x[:0]
                num_columns = self.conv.message(nothing, nothing, values[0][:0] if values else None).shape[1]
            known = self.block.exchange.maximum(torch.tensor([[num_columns]], device=x.device))
            self.conv.num_columns = int(known)
        return self.conv.num_columns

    def chunks(self, x: Tensor) -> Iterator[tuple[int, Tensor | None, list[EdgeChunk]]]:
        """For each step, the rows that have arrived, if any, and the chunks of its edges."""
        for step, rows in enumerate(self.block.exchange.arrivals(x)):
            yield step, rows, [] if rows is None else self.stages[step].chunks(CHUNK_EDGES)


class _Aggregate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: _Call, x: Tensor, targets: Tensor, *others: Tensor) -> Tensor:
        values, block, conv = others[: call.num_values], call.block, call.conv
        x, targets, largest = x.detach(), targets.detach(), conv.aggregation == "max"
        width = call.width(x, values)
        total = x.new_zeros(len(targets), width + 1)  # the last column counts the edges
        state = MaxState.empty(len(targets), width, x) if largest else None
        source_ids = block.stage_source_id if largest else []
        for step, rows, chunks in call.chunks(x):
            for chunk in chunks:
                assert rows is not None
                value = values[step][chunk.edges] if values else None
                source, target = rows.index_select(0, chunk.source), targets.index_select(0, chunk.target())
                messages = conv.message(source, target, value)
                if state is None:
                    messages = _counted(messages, call, step, chunk)
                    sums = total.new_zeros(chunk.csr.num_rows, width)
                    add_messages(chunk.csr, messages, sums)
                    total[chunk.targets, :width] += sums
                    total[chunk.targets, width] += chunk.csr.indptr.diff()
                else:
                    part = MaxState(state.value[chunk.targets], state.winner[chunk.targets])
                    add_largest(chunk.csr, messages, source_ids[step], part)
        ctx.call = call
        if state is not None:
            state = joined_maximum(state, block)
            ctx.save_for_backward(x, targets, state.winner, *others)
            return own_maximum(state, block)
        sums = block.exchange.reduce(total)
        out, count = sums[:, :width].contiguous(), sums[:, width:].clamp(min=1)
        ctx.save_for_backward(x, targets, count, *others)
        return out / count if conv.aggregation == "mean" else out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        call, block, conv = ctx.call, ctx.call.block, ctx.call.conv
        x, targets, kept, *others = ctx.saved_tensors
        values, parameters = others[: call.num_values], others[call.num_values :]
        needs_x, needs_targets, *needs_others = ctx.needs_input_grad[1:]
        if conv.aggregation == "mean":
            grad = grad / kept
        grad_all = block.exchange.gather_targets(grad.contiguous())
        grad_targets = torch.zeros_like(targets) if needs_targets else None
        grad_others = [torch.zeros_like(tensor) if needs else None for tensor, needs in zip(others, needs_others)]
        grad_values, grad_parameters = grad_others[: call.num_values], grad_others[call.num_values :]
        push = block.exchange.push(x.shape[1], x) if needs_x else None
        for step, rows, chunks in call.chunks(x):
            grad_rows = None if rows is None or push is None else rows.new_zeros(rows.shape)
            for chunk in chunks:
                assert rows is not None
                numbers = chunk.target()
                with torch.enable_grad():
                    source = rows.index_select(0, chunk.source).requires_grad_(needs_x)
                    target = targets.index_select(0, numbers).requires_grad_(needs_targets)
                    value = values[step][chunk.edges].detach().requires_grad_(needs_others[step]) if values else None
                    messages = conv.message(source, target, value)
                if conv.aggregation == "max":
                    winner, grad_chunk = kept[chunk.targets], grad_all[chunk.targets]
                    arriving = largest_backward(chunk.csr, block.stage_source_id[step], winner, grad_chunk)
                else:
                    arriving = _counted(grad_all.index_select(0, numbers), call, step, chunk)
                wanted = [tensor for tensor in (source, target, value) if tensor is not None and tensor.requires_grad]
                wanted += [parameter for parameter in parameters if parameter.requires_grad]
                gradients = iter(torch.autograd.grad(messages, wanted, arriving, allow_unused=True))
                if grad_rows is not None:
                    _add_by_source(chunk, next(gradients), grad_rows)
                if grad_targets is not None:
                    _add_by_target(chunk, next(gradients), grad_targets)
                if values and grad_values[step] is not None:
                    _add(grad_values[step][chunk.edges], next(gradients))
                for total in grad_parameters:
                    if total is not None:
                        _add(total, next(gradients))
            if push is not None:
                push.step(grad_rows)
                del grad_rows  # before those of the next step are allocated
        grad_x = None if push is None else push.finish()
        summed = [None if total is None else block.exchange.sum_partial(total) for total in grad_parameters]
        return None, grad_x, grad_targets, *grad_values, *summed


def _counted(messages: Tensor, call: _Call, step: int, chunk: EdgeChunk) -> Tensor:
    """The (E, F) ``messages``, or their gradients, each as often as it counts in a sum."""
    factor = call.stages[step].factor
    return messages if factor is None or call.conv.aggregation != "sum" else messages * factor[chunk.edges, None]


def _add(total: Tensor, gradient: Tensor | None) -> None:
    """Add a gradient, which is None where the message does not depend on its tensor."""
    if gradient is not None:
        total += gradient


def _add_by_source(chunk: EdgeChunk, gradient: Tensor | None, grad_rows: Tensor) -> None:
    """Add the (E, F) gradients of the edges' sources to those of the (m, F) rows."""
    if gradient is None:
        return
    sums = gradient.new_zeros(len(chunk.sources), gradient.shape[1])
    add_messages(chunk.by_source, gradient.index_select(0, chunk.by_source.indices), sums)
    grad_rows.index_add_(0, chunk.sources, sums)  # no source occurs twice


def _add_by_target(chunk: EdgeChunk, gradient: Tensor | None, grad_targets: Tensor) -> None:
    """Add the (E, F) gradients of the edges' targets to those of the (n, F) targets."""
    if gradient is not None:
        add_messages(chunk.csr, gradient, grad_targets[chunk.targets])
