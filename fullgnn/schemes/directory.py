"""Fetch rows that are named by the original ids of their nodes, at run time.

No rank knows where all n nodes are. The ids are divided evenly: rank d keeps, for the ids from d n/p to (d+1) n/p, the
rank that holds the node and its row there. A request takes three rounds of messages between all pairs of ranks:

    ids       to the keepers of the ids
    places    back to the requester: holder and row of each id
    rows      requests to the holders, and the rows back

A list of ids that is known before the rows are takes the first two rounds once: see ``find`` and ``find_steps``.
The adjoint sends the gradient of each fetched row to its holder, which adds the gradients in rank order.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fullgnn.distributed import Axis, all_gather_objects
from fullgnn.errors import DataError


@dataclass(frozen=True, eq=False)
class Request:
    """Where the rows of one list of ids are."""

    order: Tensor  # (num_ids,) int64, the ids sorted by their holder
    num_from: list[int]  # rows that each rank sends to this one
    rows_for: list[Tensor]  # for each rank, (num,) int64, the own rows that it requests
    same_on_copies: bool = False  # whether the ranks that hold the same rows request the same ids, for the same use


class Directory:
    """Which rank holds which node. The constructor is a collective.

    Args:
        world: all ranks.
        copies: the ranks that hold the same rows as this one, consecutive ones of ``world``; None: no other rank does.
            A rank fetches a row from the copy with its own index.
        node_id: (num_own,) int64, original ids of this rank's rows.
        num_nodes: number of nodes of the graph, GLOBAL.
    """

    def __init__(self, world: Axis, copies: Axis | None, node_id: Tensor, num_nodes: int):
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
        return self.rows(x, self.find(ids))

    @property
    def is_alone(self) -> bool:
        """Whether this rank holds all rows."""
        return self._world.size == 1

    def rows(self, x: Tensor, request: Request) -> Tensor:
        """Return the rows of X that were found by ``request``, differentiable. Every rank calls it."""
        return _FetchRows.apply(x, self, request)

    def _by_keeper(self, ids: Tensor) -> tuple[Tensor, list[int]]:
        """The order that sorts ``ids`` by the rank that keeps them, and how many of them each rank keeps."""
        keeper = ids // -(-self._num_nodes // self._world.size)
        counts = torch.bincount(keeper, minlength=self._world.size).tolist()
        return torch.argsort(keeper, stable=True), counts

    def find(self, ids: Tensor, same_on_copies: bool = False) -> Request:
        """Find the rows of ``ids``, which ``rows`` then brings, of as many matrices as needed. Every rank calls it.

        Args:
            same_on_copies: see ``Request``.

        Raises:
            DataError: as ``fetch``.
        """
        return self.find_steps(ids, [len(ids)], same_on_copies)[0]

    def find_steps(self, ids: Tensor, sizes: Sequence[int], same_on_copies: bool = False) -> list[Request]:
        """``find`` for several lists of ids by one exchange.

        Args:
            ids: the ids of all lists, one list after the other.
            sizes: the length of each list; every rank has as many lists.
        """
        wanted, num_steps, num_ranks = ids.detach().cpu(), len(sizes), self._world.size
        wrong = wanted[(wanted < 0) | (wanted >= self._num_nodes)]
        unknown = [entry for entry in all_gather_objects(wrong[:1].tolist()) if entry]
        if unknown:
            raise DataError(
                f"node {unknown[0][0]} is not in the graph: its original ids are 0 to {self._num_nodes - 1}"
            )
        order, counts = self._by_keeper(wanted)
        asked = self._world.all_to_all(list(wanted[order].split(counts)), "ids")
        answers = self._world.all_to_all([self._place[one - self._first] for one in asked], "ids")
        place = torch.empty(len(wanted), 2, dtype=torch.int64)
        place[order] = torch.cat(answers)
        holder = place[:, 0]  # of replicas, the first
        if self._copies is not None:
            holder = holder + self._copies.index
        step = torch.repeat_interleave(torch.arange(num_steps), torch.tensor(sizes))
        num_from = torch.bincount(step * num_ranks + holder, minlength=num_steps * num_ranks).view(num_steps, num_ranks)
        by_step = torch.argsort(step * num_ranks + holder, stable=True)  # by step, then by holder
        by_holder = torch.argsort(holder, stable=True)  # by holder, then by step
        rows = list(place[by_holder, 1].split(num_from.sum(dim=0).tolist()))
        rows_for = [one.to(ids.device) for one in self._world.all_to_all(rows, "ids")]
        num_for = self._world.all_to_all(list(num_from.T.contiguous()), "ids", [num_steps] * num_ranks)
        pieces = [rows.split(num.tolist()) for rows, num in zip(rows_for, num_for)]  # by rank, then by step
        firsts = torch.tensor([0, *sizes]).cumsum(0)[:-1].repeat_interleave(torch.tensor(sizes))
        orders = (by_step - firsts).to(ids.device).split(list(sizes))
        return [
            Request(orders[number], num_from[number].tolist(), [of_rank[number] for of_rank in pieces], same_on_copies)
            for number in range(num_steps)
        ]


class _FetchRows(torch.autograd.Function):
    """The conjugate of fetching rows is to add their gradients where the rows are."""

    @staticmethod
    def forward(ctx, x: Tensor, directory: Directory, request: Request) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.directory, ctx.request = directory, request
        sent = [x.detach().index_select(0, rows) for rows in request.rows_for]
        arrived = directory._world.all_to_all(sent, "exchange", request.num_from)
        out = x.new_empty(len(request.order), x.shape[1])
        out[request.order] = torch.cat(arrived)
        return out

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[no-untyped-def, override]
        directory, request = ctx.directory, ctx.request
        sent = list(grad[request.order].split(request.num_from))
        arrived = directory._world.all_to_all(sent, "push", [len(rows) for rows in request.rows_for])
        total = grad.new_zeros(directory._num_own, grad.shape[1])
        for rows, gradients in zip(request.rows_for, arrived):
            total.index_put_((rows,), gradients, accumulate=True)  # adds repeated rows in a fixed order, also on a GPU
        if directory._copies is not None and not request.same_on_copies:
            directory._copies.all_reduce(total)
        return total, None, None
