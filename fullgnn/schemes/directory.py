"""Fetch rows that are named by the original ids of their nodes, at run time.

No rank knows where all n nodes are. The ids are divided evenly: rank d keeps, for the ids from d n/p to (d+1) n/p, the
rank that holds the node and its row there. A request takes three rounds of messages between all pairs of ranks:

    ids       to the keepers of the ids
    places    back to the requester: holder and row of each id
    rows      requests to the holders, and the rows back

The adjoint sends the gradient of each fetched row to its holder, which adds the gradients in rank order.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fullgnn.distributed import Axis, all_gather_objects
from fullgnn.errors import DataError


@dataclass(frozen=True, eq=False)
class _Request:
    """Where the rows of one list of ids are."""

    order: Tensor  # (num_ids,) int64, the ids sorted by their holder
    num_from: list[int]  # rows that each rank sends to this one
    rows_for: list[Tensor]  # for each rank, (num,) int64, the own rows that it requests


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
        return _FetchRows.apply(x, self, self._find(ids))

    def _by_keeper(self, ids: Tensor) -> tuple[Tensor, list[int]]:
        """The order that sorts ``ids`` by the rank that keeps them, and how many of them each rank keeps."""
        keeper = ids // -(-self._num_nodes // self._world.size)
        counts = torch.bincount(keeper, minlength=self._world.size).tolist()
        return torch.argsort(keeper, stable=True), counts

    def _find(self, ids: Tensor) -> _Request:
        wanted = ids.detach().cpu()
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
        order = torch.argsort(holder, stable=True)
        num_from = torch.bincount(holder, minlength=self._world.size).tolist()
        rows_for = self._world.all_to_all(list(place[order, 1].split(num_from)), "ids")
        return _Request(order.to(ids.device), num_from, [rows.to(ids.device) for rows in rows_for])


class _FetchRows(torch.autograd.Function):
    """The conjugate of fetching rows is to add their gradients where the rows are."""

    @staticmethod
    def forward(ctx, x: Tensor, directory: Directory, request: _Request) -> Tensor:  # type: ignore[no-untyped-def]
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
        return total if directory._copies is None else directory._copies.all_reduce(total), None, None
