"""Fetch rows that are named by the original ids of their nodes, at run time.

No rank knows where all n nodes are. The ids are divided evenly: rank d keeps, for the ids from d n/p to (d+1) n/p, the
rank that holds the node and its row there. A request takes three rounds of messages between all pairs of ranks:

    ids       to the keepers of the ids
    places    back to the requester: holder and row of each id
    rows      requests to the holders, and the rows back

Lists of ids that are known before the rows are go through the first two rounds together: see ``find_steps``.
The adjoint sends the gradient of each fetched row to its holder, which adds the gradients in rank order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from fullgnn.distributed import Axis, all_gather_objects
from fullgnn.errors import DataError
from fullgnn.kernels.support.to_device import move
from fullgnn.schemes.buffers import BufferPool
from fullgnn.schemes.row_exchange import linear_map


@dataclass(frozen=True, eq=False)
class RowRequest:
    """Where the rows of one list of ids are."""

    order: Tensor  # (num_ids,) int64, the ids sorted by their holder
    num_from: list[int]  # rows that each rank sends to this one
    rows_for: list[Tensor]  # for each rank, (num,) int64, the own rows that it requests


@dataclass(frozen=True, eq=False)
class StepRequest:
    """Where the rows of one list of ``Directory.find_steps`` are. They arrive in the order of the ranks."""

    held: list[Tensor]  # for each rank, (num,) int64, the rows there that this rank requests; each once
    rows_for: list[Tensor]  # for each rank, (num,) int64, the own rows that it requests; each once
    first: list[int]  # for each rank, where the rows of this rank begin among all rows that it requests
    most: int  # the largest number of rows that a rank requests in any step


class Directory:
    """Which rank holds which node. The constructor is a collective.

    Args:
        world: all ranks.
        copies: the ranks that hold the same rows as this one, consecutive ones of ``world``; None: no other rank does.
            A rank fetches a row from the copy with its own index.
        node_id: (num_own,) int64, original ids of this rank's rows.
        num_nodes: number of nodes of the graph, GLOBAL.
        buffers: their slots in shared memory are used; None: rows travel as messages.
    """

    def __init__(
        self, world: Axis, copies: Axis | None, node_id: Tensor, num_nodes: int, buffers: BufferPool | None = None
    ):
        self._buffers = buffers
        self._num_held = all_gather_objects(len(node_id))
        self._world, self._copies, self._num_nodes, self._num_own = world, copies, num_nodes, len(node_id)
        self._first = -(-num_nodes // world.size) * world.index
        ids = node_id.cpu() if copies is None or copies.index == 0 else node_id.new_empty(0, device="cpu")
        order, counts = self._by_keeper(ids)
        entries = torch.stack([ids[order], order], dim=1)
        arrived = world.all_to_all(list(entries.split(counts)), "ids")
        num_kept = max(0, min(-(-num_nodes // world.size), num_nodes - self._first))
        self._place = torch.full((num_kept, 2), -1, dtype=torch.int64)  # holder and its row; -1: no such node
        for rank, entry in enumerate(arrived):
            kept = entry[:, 0] - self._first
            self._place[kept, 0], self._place[kept, 1] = rank, entry[:, 1]

    def fetch(self, x: Tensor, ids: Tensor) -> Tensor:
        """Return the rows of X of the nodes ``ids``, differentiable. Every rank calls it.

        Args:
            x: (num_own, F), this rank's rows.
            ids: (num_ids,) int64, original ids, in any order and with repetitions; other ranks may name others.

        Returns:
            (num_ids, F), in the order of ``ids``.

        Raises:
            DataError: a rank names a node that the graph does not have; the same on every rank.
        """
        request = self._find(ids)
        return linear_map(partial(self._fetch, request), partial(self._add, request), x)

    def fetch_stretch(self, x: Tensor, ids: range) -> Tensor:
        """``fetch`` of consecutive ids. If this rank holds all rows, the host does not wait for a GPU."""
        if self.is_alone and 0 <= ids.start and ids.stop <= self._num_nodes:
            return x.index_select(0, move(self.own_rows(torch.arange(ids.start, ids.stop)), x.device))
        return self.fetch(x, torch.arange(ids.start, ids.stop, device=x.device))

    @property
    def is_alone(self) -> bool:
        """Whether this rank holds all rows."""
        return self._world.size == 1

    def own_rows(self, ids: Tensor) -> Tensor:
        """The LOCAL rows of the nodes ``ids``, where this rank holds all rows."""
        assert self.is_alone
        return self._place[ids, 1]

    def rows(self, x: Tensor, request: StepRequest) -> Tensor:
        """Return the rows of X that ``find_steps`` has found, differentiable. Every rank calls it.

        Each of the ranks that hold the same rows fetches the same rows for the same use, so that the gradients which
        come back are complete on each of them.
        """
        return linear_map(partial(self._fetch_step, request), partial(self._add_step, request), x)

    def _by_keeper(self, ids: Tensor) -> tuple[Tensor, list[int]]:
        """The order that sorts ``ids`` by the rank that keeps them, and how many of them each rank keeps."""
        keeper = ids // -(-self._num_nodes // self._world.size)
        counts = torch.bincount(keeper, minlength=self._world.size).tolist()
        return torch.argsort(keeper, stable=True), counts

    def _find(self, ids: Tensor) -> RowRequest:
        """The rows of ``ids``, in a function of its own, so that what finds them is not held while they arrive."""
        holder, row = self._places(ids)
        order = torch.argsort(holder, stable=True)
        num_from = torch.bincount(holder, minlength=self._world.size).tolist()
        rows_for = self._world.all_to_all(list(row[order].split(num_from)), "ids")
        return RowRequest(order.to(ids.device), num_from, [rows.to(ids.device) for rows in rows_for])

    def find_steps(self, ids: Tensor, sizes: Sequence[int]) -> tuple[Tensor, list[StepRequest]]:
        """Find the rows of several lists of ids by one exchange. Every rank calls it, with as many lists.

        The ranks that hold the same rows name the same ids.

        Args:
            ids: the ids of all lists, one list after the other; none is twice in a list.
            sizes: the length of each list.

        Returns:
            for each id, its row in the result of ``rows`` for its list; and the request of each list.
        """
        num_steps, num_ranks, device = len(sizes), self._world.size, ids.device
        holder, row = self._places(ids)
        length = torch.tensor(sizes, dtype=torch.int64)
        cell = torch.repeat_interleave(torch.arange(num_steps), length) * num_ranks + holder
        num_from = torch.bincount(cell, minlength=num_steps * num_ranks).view(num_steps, num_ranks)
        order = torch.argsort(cell, stable=True)  # by list, then by holder
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order)) - (length.cumsum(0) - length).repeat_interleave(length)
        held_rows = row[order].to(device).split(num_from.flatten().tolist())  # by list, then by holder
        first = num_from.cumsum(dim=1) - num_from
        mine = [torch.cat(held_rows[rank::num_ranks]) for rank in range(num_ranks)]
        about = [torch.stack([num_from[:, rank], first[:, rank]]) for rank in range(num_ranks)]
        theirs = self._world.all_to_all(mine, "ids")
        about = self._world.all_to_all(about, "ids", [2] * num_ranks)
        pieces = [rows.split(num.tolist()) for rows, (num, _) in zip(theirs, about)]
        most = torch.tensor([max(sizes, default=0)], device=device)
        self._world.all_reduce(most, "max")
        return place.to(device), [
            StepRequest(
                list(held_rows[step * num_ranks : (step + 1) * num_ranks]),
                [of_rank[step] for of_rank in pieces],
                [int(starts[step]) for _, starts in about],
                int(most),
            )
            for step in range(num_steps)
        ]

    def _places(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """The rank that holds each of ``ids``, of several the one from which this rank fetches, and its row there."""
        wanted = ids.detach().cpu()
        wrong = wanted[(wanted < 0) | (wanted >= self._num_nodes)]
        unknown = [entry for entry in all_gather_objects(wrong[:1].tolist()) if entry]
        if unknown:
            raise DataError(
                f"node {unknown[0][0]} is not in the graph: its original ids are 0 to {self._num_nodes - 1}"
            )
        order, counts = self._by_keeper(wanted)
        asked = self._world.all_to_all(list(wanted[order].split(counts)), "ids")
        answers = self._world.all_to_all([self._place[asked_ids - self._first] for asked_ids in asked], "ids")
        place = torch.empty(len(wanted), 2, dtype=torch.int64)
        place[order] = torch.cat(answers)
        holder = place[:, 0]  # of replicas, the first
        return (holder if self._copies is None else holder + self._copies.index), place[:, 1]

    def _fetch(self, request: RowRequest, x: Tensor) -> Tensor:
        sent = [x.index_select(0, rows) for rows in request.rows_for]
        arrived = self._world.all_to_all(sent, "exchange", request.num_from)
        out = x.new_empty(len(request.order), x.shape[1])
        out[request.order] = torch.cat(arrived)
        return out

    def _add(self, request: RowRequest, grad: Tensor) -> Tensor:
        """The adjoint of ``_fetch``: the gradients are added where the rows are."""
        sent = list(grad[request.order].split(request.num_from))
        arrived = self._world.all_to_all(sent, "push", [len(rows) for rows in request.rows_for])
        total = grad.new_zeros(self._num_own, grad.shape[1])
        for rows, gradients in zip(request.rows_for, arrived):
            total.index_put_((rows,), gradients, accumulate=True)  # adds repeated rows in a fixed order, also on a GPU
        return total if self._copies is None else self._copies.all_reduce(total)

    def _fetch_step(self, request: StepRequest, x: Tensor) -> Tensor:
        """As ``_fetch``. Ranks on one machine read each other's rows, and gradients of their rows, in place."""
        world, num_from = self._world, [len(rows) for rows in request.held]
        if self._buffers is None:
            sent = [x.index_select(0, rows) for rows in request.rows_for]
            return torch.cat(world.all_to_all(sent, "exchange", num_from))
        readers = [rank for rank, rows in enumerate(request.rows_for) if len(rows) and rank != world.index]
        slots, out = self._buffers.row_slots, x.new_empty(sum(num_from), x.shape[1])
        with world.meter.phase("comm"):
            slot = slots.begin(self._num_held, x.shape[1], x.dtype, readers)
        slot.copy_(x)
        slots.publish()
        for rank, (rows, piece) in enumerate(zip(request.held, out.split(num_from))):
            if not len(rows):
                continue
            held = slot
            if rank != world.index:
                with world.meter.phase("comm"):
                    held = slots.read(rank)
                world.meter.received("exchange", piece.nbytes)
            torch.index_select(held, 0, rows, out=piece)
        slots.end()
        return out

    def _add_step(self, request: StepRequest, grad: Tensor) -> Tensor:
        """The adjoint of ``_fetch_step``. Within a step no row occurs twice."""
        world, own = self._world, grad.split([len(rows) for rows in request.held])
        total = grad.new_zeros(self._num_own, grad.shape[1])
        if self._buffers is None:
            arrived = world.all_to_all(list(own), "push", [len(rows) for rows in request.rows_for])
            for rows, gradients in zip(request.rows_for, arrived):
                total.index_add_(0, rows, gradients)
            return total
        owners = [rank for rank, rows in enumerate(request.held) if len(rows) and rank != world.index]
        slots = self._buffers.gradient_slots
        with world.meter.phase("comm"):
            slot = slots.begin([request.most] * world.size, grad.shape[1], grad.dtype, owners)
        slot[: len(grad)].copy_(grad)
        slots.publish()
        for rank, (rows, first) in enumerate(zip(request.rows_for, request.first)):
            if not len(rows):
                continue
            gradients = own[rank]
            if rank != world.index:
                with world.meter.phase("comm"):
                    gradients = slots.read(rank, slice(first, first + len(rows)))
                world.meter.received("push", gradients.numel() * gradients.element_size())
            total.index_add_(0, rows, gradients)
        slots.end()
        return total
