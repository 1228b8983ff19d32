"""The best items of users by score, and Recall@k and NDCG@k of the items that should be among them.

Nothing of the size users x items is ever there: blocks of scores, of some users and some items, pass one after the
other in ascending order of the items' ids, and leave

    scores, ids     of the k best items of each user so far; of equal scores the lower id is better
    num_tied        how many items have the score of the last of these, and are not among them
    wanted scores   those of the items that should be found

A metric is its mean over all orders of a user's items with equal scores, so it depends neither on ids nor on the number
of ranks. If ``better`` items have a higher score than an item, and ``equal`` ones, the item included, have its score,
then the item stands on each of the places better + 1 to better + equal with the same probability.
"""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fullgnn.graph.links import Lists
from fullgnn.kernels.support import gpu
from fullgnn.kernels.support.to_device import move
from fullgnn.room import module_on_use

if TYPE_CHECKING:
    from fullgnn.tasks import _ranking_cpu
else:
    _ranking_cpu = module_on_use("fullgnn.tasks._ranking_cpu")

ITEMS_AT_ONCE, USERS_AT_ONCE, USERS_ON_GPU = 85 * 48, 1 << 8, 1 << 12
"""The largest block of scores that exists at a time, on a CPU and on a GPU."""
NO_ITEM = -1
_COLUMNS, _COMPARED_AT_ONCE, _COMPARED_ON_GPU = 48, 1 << 22, 1 << 27
_NOT_RANKED = float("-inf")


class Chunks:
    """The items in chunks of one size, of which the last one may have columns that stand for no item.

    A matrix product computes its last columns with another kernel than the others, with other rounding, unless their
    number is a multiple of the width of its kernels; and products of several sizes differ too. Then two items with
    equal rows would have unequal scores.

    Args:
        items: their ids.
    """

    def __init__(self, items: range):
        num_chunks = max(1, -(-len(items) // ITEMS_AT_ONCE))
        self.width = max(1, -(-len(items) // (num_chunks * _COLUMNS))) * _COLUMNS
        self.ranges = [items[begin : begin + self.width] for begin in range(0, len(items), self.width)]
        self._items = items

    def number_of(self, ids: np.ndarray) -> np.ndarray:
        """The chunk of each of ``ids``."""
        return (ids - self._items.start) // self.width


class BestItems:
    """The k best items of some users among those that ``add`` has seen.

    An item whose score is NaN or -Inf is not ranked.
    """

    def __init__(self, num_users: int, k: int, like: Tensor):
        self.scores = like.new_full((num_users, k), _NOT_RANKED)
        self.ids = torch.full((num_users, k), NO_ITEM, device=like.device)
        self.num_tied = torch.zeros(num_users, dtype=torch.int64, device=like.device)

    def add(
        self,
        scores: Tensor,
        some: slice,
        chunk: range,
        known: Lists,
        sorts: bool = False,
        masked: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        """Take the ``scores`` of the users ``some`` and of the items of ``chunk``, which may be overwritten.

        Args:
            scores: (number of users, at least as many columns as ``chunk`` has items).
            chunk: consecutive ids, larger than all ids before.
            known: by user, of all users, the items that are not ranked.
            sorts: whether to sort in place of the compiled scan, as on a GPU.
            masked: the rows and columns of ``scores`` of the items that are not ranked; None: those of ``known``.
        """
        if gpu.runs_host_loops(scores.device) and not sorts:
            kept = self.scores.numpy(), self.ids.numpy(), self.num_tied.numpy()
            _ranking_cpu.take_best(scores.numpy(), len(chunk), some.start, chunk.start, *known, *kept)
            return
        stop, k = min(some.stop, len(self.ids)), self.ids.shape[1]
        if masked is None:
            part = known.of(np.arange(some.start, stop))
            user = np.repeat(np.arange(stop - some.start), np.diff(part.indptr))
            here = (part.ids >= chunk.start) & (part.ids < chunk.stop)
            row, column = move(torch.from_numpy(np.stack([user[here], part.ids[here] - chunk.start])), scores.device)
            masked = row, column
        scores = scores[:, : len(chunk)].nan_to_num_(nan=_NOT_RANKED, posinf=float("inf"), neginf=_NOT_RANKED)
        scores[masked] = _NOT_RANKED
        ids = torch.arange(chunk.start, chunk.stop, device=scores.device).expand(len(scores), -1)
        before = self.scores[some, -1]
        joined = torch.cat([self.scores[some], scores], dim=1)
        ordered, order = joined.sort(dim=1, descending=True, stable=True)  # of equal scores, the lower id stays first
        best, last = ordered[:, :k], ordered[:, k - 1]
        num_left = (ordered[:, k:] == last[:, None]).sum(dim=1)
        tied = self.num_tied[some].where(before == last, 0) + num_left
        self.num_tied[some] = tied.where(last > _NOT_RANKED, 0)
        chosen = torch.cat([self.ids[some], ids], dim=1).gather(1, order[:, :k])
        self.scores[some], self.ids[some] = best, chosen.where(best > _NOT_RANKED, NO_ITEM)


def users_at_once(device: torch.device) -> int:
    """How many users a block of scores has."""
    return USERS_AT_ONCE if gpu.runs_host_loops(device) else USERS_ON_GPU


class BlockPlaces:
    """Where pairs of a user and an item lie in the blocks of scores.

    Args:
        pairs: by user, of all users, the items.
        chunks: the items; the blocks pass chunk by chunk, and in each chunk by ``users_at_once`` users.
    """

    def __init__(self, pairs: Lists, chunks: Chunks, device: torch.device):
        counts, at_once = np.diff(pairs.indptr), users_at_once(device)
        user = np.repeat(np.arange(len(counts)), counts)
        num_blocks = -(-len(counts) // at_once)
        block = chunks.number_of(pairs.ids) * num_blocks + user // at_once
        order = np.argsort(block, kind="stable")
        self.user = user[order]
        """(num_pairs,) int64, by block."""
        self._starts = np.searchsorted(block[order], np.arange(len(chunks.ranges) * num_blocks + 1)).tolist()
        column = (pairs.ids[order] - chunks.ranges[0].start) % chunks.width if len(order) else order
        self._row, self._column = move(torch.from_numpy(np.stack([self.user % at_once, column])), device)

    def slice_of(self, number: int) -> slice:
        """The pairs of a block."""
        return slice(*self._starts[number : number + 2])

    def of(self, number: int) -> tuple[Tensor, Tensor]:
        """Row and column of the pairs of a block."""
        own = self.slice_of(number)
        return self._row[own], self._column[own]


class WantedScores:
    """The scores of the items that should be found, taken out of the blocks of scores of ``BestItems.add``.

    Args:
        wanted: by user, of all users, these items.
        chunks: see ``BlockPlaces``.
        like: a tensor with the type and on the device of the scores.
    """

    def __init__(self, wanted: Lists, chunks: Chunks, like: Tensor):
        self.counts = np.diff(wanted.indptr)
        """(num_users,) int64, how many items of each user should be found."""
        self._places = BlockPlaces(wanted, chunks, like.device)
        self._scores = like.new_empty(len(self._places.user))
        self._num_seen = 0

    def take(self, scores: Tensor) -> None:
        """Take what the next block of ``scores`` has of them."""
        self._scores[self._places.slice_of(self._num_seen)] = scores[self._places.of(self._num_seen)]
        self._num_seen += 1

    def by_user(self) -> tuple[np.ndarray, np.ndarray]:
        """The user and the score of each item, sorted by user."""
        order = np.argsort(self._places.user, kind="stable")
        return self._places.user[order], self._scores.cpu().numpy()[order]

    def on_device(self) -> tuple[Tensor, Tensor]:
        """As ``by_user``, on the device of the scores."""
        order = np.argsort(self._places.user, kind="stable")
        user, order = move(torch.from_numpy(np.stack([self._places.user[order], order])), self._scores.device)
        return user, self._scores[order]


def ranking_sums(best: BestItems, wanted: WantedScores, metrics: tuple[str, ...]) -> Tensor:
    """(1 + number of metrics,) float64: the number of users with a wanted item, and the sums of ``ranking_scores``."""
    if gpu.runs_host_loops(best.scores.device):
        scores = ranking_scores(best, wanted, metrics)
        return torch.from_numpy(np.append(len(scores), scores.sum(axis=0)))
    return _sums_on_device(best, wanted, metrics)


def ranking_scores(best: BestItems, wanted: WantedScores, metrics: tuple[str, ...]) -> np.ndarray:
    """(number of users with a wanted item, number of metrics) float64; the metrics as ``recall@20`` and ``ndcg@20``.

    Args:
        best: with at least as many items of a user as a metric looks at.
    """
    user, better, equal = _places(best, wanted)
    discount = 1 / np.log2(np.arange(2, best.scores.shape[1] + 2))
    gain, ideal = np.concatenate([[0], np.cumsum(discount)]), np.cumsum(discount)
    has = np.flatnonzero(wanted.counts)
    counts = wanted.counts[has]
    scores = np.empty((len(has), len(metrics)))
    for number, name in enumerate(metrics):
        kind, _, k = name.partition("@")
        first, last = np.minimum(better, int(k)), np.minimum(better + equal, int(k))
        if kind == "recall":
            means, most = (last - first) / equal, counts
        else:
            alone = np.where(last > first, discount[better], 0)  # exact, where the difference of two sums is not
            means = np.where(equal == 1, alone, (gain[last] - gain[first]) / equal)
            most = ideal[np.minimum(counts, int(k)) - 1]
        scores[:, number] = np.bincount(user, means, len(wanted.counts))[has] / most
    return scores


def _sums_on_device(best: BestItems, wanted: WantedScores, metrics: tuple[str, ...]) -> Tensor:
    """``ranking_sums`` as torch operations, for none of which the host waits. An item that is not among the best ones
    of its user adds 0."""
    device, k = best.scores.device, best.scores.shape[1]
    user, scores = wanted.on_device()
    last = best.scores[user, -1]
    ranked = (scores >= last) & (scores > _NOT_RANKED)
    better, equal = torch.empty_like(user), best.num_tied[user].where(scores == last, 0)
    step = max(1, _COMPARED_ON_GPU // k)
    for some in (slice(begin, begin + step) for begin in range(0, len(user), step)):
        tops = best.scores[user[some]]
        better[some] = (tops > scores[some, None]).sum(dim=1)
        equal[some] += (tops == scores[some, None]).sum(dim=1)
    order = (user * (k + 1) + better).sort(stable=True).indices  # sums do not depend on the items' ids
    ranked, better, equal = ranked[order], better[order], equal[order].clamp(min=1)

    counts = wanted.counts[wanted.counts > 0]
    discount = 1 / np.log2(np.arange(2, k + 2))
    tables = move(torch.from_numpy(np.stack([np.append(0, np.cumsum(discount)), np.append(discount, 0)])), device)
    lengths = move(torch.from_numpy(counts), device)
    sums = [torch.full((), float(len(counts)), dtype=torch.float64, device=device)]
    for name in metrics:
        kind, _, at = name.partition("@")
        first, end = better.clamp(max=int(at)), (better + equal).clamp(max=int(at))
        if kind == "recall":
            means, most = (end - first) / equal.double(), lengths.double()
        else:
            alone = tables[1][better].where(end > first, 0)
            means = torch.where(equal == 1, alone, (tables[0][end] - tables[0][first]) / equal)
            most = tables[0][lengths.clamp(max=int(at))]
        of_users = torch.segment_reduce(means.where(ranked, 0), "sum", lengths=lengths, unsafe=True)
        sums.append((of_users / most).sum())
    return torch.stack(sums)


def _places(best: BestItems, wanted: WantedScores) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Find the places of the wanted items that may be among the best ones of their users.

    Returns:
        for each such item its user, and how many items are ``better`` and ``equal``; sorted by user, then by place.
    """
    user, scores = wanted.by_user()
    tops, num_tied = best.scores.cpu().numpy(), best.num_tied.cpu().numpy()
    ranked = np.flatnonzero((scores >= tops[user, -1]) & (scores > _NOT_RANKED))
    user, scores = user[ranked], scores[ranked, None]
    better = np.empty(len(user), np.int64)
    equal = np.where(scores[:, 0] == tops[user, -1], num_tied[user], 0)
    per_slice = max(1, _COMPARED_AT_ONCE // tops.shape[1])
    for begin in range(0, len(user), per_slice):
        some = slice(begin, begin + per_slice)
        better[some] = (tops[user[some]] > scores[some]).sum(axis=1)
        equal[some] += (tops[user[some]] == scores[some]).sum(axis=1)
    order = np.lexsort([better, user])
    return user[order], better[order], equal[order]
