"""Rank items for users: Bayesian personalised ranking (Rendle et al., 2009), Recall@k and NDCG@k.

The metrics rank, for each user, all items that the user has not been trained with. Nothing of the size users x items is
ever there: the items are ranked chunk by chunk, in ascending order of their ids,

    rows of the chunk of items   arrive on every rank
    scores                       of some of the rank's users and these items
    best so far                  the k best items of each user, of which a later one with an equal score is worse

So ties go to the item with the lower id in the dataset, on any number of ranks.
"""

from typing import Optional

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fullgnn.errors import ConfigError, DataError
from fullgnn.graph import Graph
from fullgnn.graph.links import LinkFacts, Lists
from fullgnn.graph.links import hold_out as hold_out_pairs
from fullgnn.schemes.base import Scheme, ShardedGraph
from fullgnn.tasks.links import LinkTask, directory_of, pairs_of
from fullgnn.tasks.task import SPLITS, by_split

ITEMS_AT_ONCE, USERS_AT_ONCE = 1 << 12, 1 << 8
"""The largest block of scores that exists at a time."""
NO_ITEM = -1


def link_ranking(
    links: LinkFacts,
    metrics: Optional[list[str]] = None,
    batch_size: Optional[int] = None,
    channels: int = 64,
    val_fraction: float = 0.0,
    split_seed: int = 0,
    seed: int = 0,
) -> "LinkRanking":
    """Build the task.

    Args:
        metrics: of recall@k and ndcg@k with any k, by default with k = 20; the first one chooses the best epoch.
        batch_size, channels, seed: see ``LinkTask``.
        val_fraction, split_seed: see ``hold_out``.

    Raises:
        ConfigError: a key is out of range.
        DataError: the graph is not bipartite.
    """
    task = LinkRanking(links, _metrics(metrics), batch_size, channels, seed)
    check_fractions(val_fraction=val_fraction)
    if links.num_users is None:
        raise DataError(
            "task=link_ranking needs users and items: choose dataset=lastfm or dataset=interactions, give the graph"
            " num_users, or choose task=link_prediction"
        )
    return task


def hold_out(graph: Graph, val_fraction: float = 0.0, split_seed: int = 0) -> Graph:
    """``graph`` with a fraction of its interactions taken out for validation, unless it has ``val_links`` already."""
    check_fractions(val_fraction=val_fraction)
    return hold_out_pairs(graph, val_fraction, 0.0, split_seed)


link_ranking.hold_out = hold_out  # type: ignore[attr-defined]


class LinkRanking(LinkTask):
    """Each draw is a user u, an item i of the user's training items, and one other item j, with the loss
    softplus(s_uj - s_ui), the mean over the draws of a step.

    Metrics are means over the users with an item of the split: ``recall@k`` is the fraction of these items among the k
    best ones, and ``ndcg@k`` the discounted cumulative gain over that of a perfect ranking.
    """

    def __init__(
        self,
        links: LinkFacts,
        metrics: tuple[str, ...] = ("recall@20", "ndcg@20"),
        batch_size: int | None = None,
        channels: int = 64,
        seed: int = 0,
    ):
        super().__init__(links, channels, 1, batch_size, seed)
        self.metrics = metrics
        self._largest_k = max(int(name.partition("@")[2]) for name in metrics)

    def losses(self, scores: Tensor) -> Tensor:
        """See ``LinkTask.losses``."""
        return functional.softplus(scores[:, 1] - scores[:, 0])

    def measure(self, output: Tensor, graph: ShardedGraph, scheme: Scheme) -> dict[str, float | None]:
        """See ``Task.measure``; there are no metrics of the training pairs."""
        pairs = pairs_of(graph)
        wanted = np.flatnonzero(np.diff(pairs.val.indptr) + np.diff(pairs.test.indptr))
        best = self.best_items(output, graph, self._largest_k, wanted)
        sums = torch.zeros(2, 1 + len(self.metrics), dtype=torch.float64, device=output.device)
        for number, split in enumerate((pairs.val, pairs.test)):
            scores = ranking_scores(best, split.of(wanted), self.metrics)
            sums[number] = torch.from_numpy(np.append(len(scores), scores.sum(axis=0)))
        found: dict[str, float | None] = {f"train_{name}": None for name in self.metrics}
        for split_name, (count, *totals) in zip(SPLITS[1:], scheme.sum_over_rows(sums).tolist()):
            found |= {
                f"{split_name}_{name}": total / count if count else None for name, total in zip(self.metrics, totals)
            }
        return by_split(self.metrics, found)

    @torch.no_grad()
    def best_items(self, output: Tensor, graph: ShardedGraph, k: int, rows: np.ndarray | None = None) -> np.ndarray:
        """The best k items, not trained with, of users of this rank. Every rank calls it.

        Args:
            output: (num_local_nodes, num_outputs).
            rows: LOCAL rows of the users; None: all users of this rank, as ``user_rows`` lists them.

        Returns:
            (number of users, k) int64, ORIGINAL node ids, the best first; ``NO_ITEM`` where there are no more items.
        """
        pairs, directory = pairs_of(graph), directory_of(graph)
        rows = user_rows(graph) if rows is None else rows
        known, users = pairs.known.of(rows), output[torch.from_numpy(rows).to(output.device)]
        best = _Best(len(rows), k, output)
        candidates = self.links.candidates
        for first in range(candidates.start, candidates.stop, ITEMS_AT_ONCE):
            ids = torch.arange(first, min(first + ITEMS_AT_ONCE, candidates.stop), device=output.device)
            items = directory.fetch(output, ids)
            for begin in range(0, len(rows), USERS_AT_ONCE):
                some = slice(begin, begin + USERS_AT_ONCE)
                best.add(users[some] @ items.T, some, first, known)
        return best.ids.cpu().numpy()


def user_rows(graph: ShardedGraph) -> np.ndarray:
    """The LOCAL rows of the users of this rank."""
    num_users = pairs_of(graph).facts.num_users
    assert num_users is not None  # link_ranking has checked it
    return np.flatnonzero(graph.block.source_id.cpu().numpy() < num_users)


class _Best:
    """The k best items of some users among those that ``add`` has seen."""

    def __init__(self, num_users: int, k: int, like: Tensor):
        self.scores = like.new_full((num_users, k), float("-inf"))
        self.ids = torch.full((num_users, k), NO_ITEM, device=like.device)

    def add(self, scores: Tensor, some: slice, first: int, known: Lists, sorts: bool = False) -> None:
        """Take the ``scores`` of the users ``some`` and of consecutive items.

        Args:
            first: id of the first item; it is larger than all ids before.
            known: by user, of all users, the items that are not ranked.
            sorts: whether to sort in place of the compiled scan, as on a GPU.
        """
        if scores.device.type == "cpu" and not sorts:
            from fullgnn.tasks._ranking_cpu import take_best

            take_best(scores.numpy(), some.start, first, *known, self.scores.numpy(), self.ids.numpy())
            return
        stop = min(some.stop, len(self.ids))
        part = known.of(np.arange(some.start, stop))
        user = np.repeat(np.arange(stop - some.start), np.diff(part.indptr))
        here = (part.ids >= first) & (part.ids < first + scores.shape[1])
        masked = torch.from_numpy(np.stack([user[here], part.ids[here] - first])).to(scores.device)
        ids = torch.arange(first, first + scores.shape[1], device=scores.device).repeat(len(scores), 1)
        scores[masked[0], masked[1]], ids[masked[0], masked[1]] = float("-inf"), NO_ITEM
        joined = torch.cat([self.scores[some], scores], dim=1)
        ordered, order = joined.sort(dim=1, descending=True, stable=True)  # of equal scores, the lower id stays first
        k = self.ids.shape[1]
        self.scores[some] = ordered[:, :k]
        self.ids[some] = torch.cat([self.ids[some], ids], dim=1).gather(1, order[:, :k])


def ranking_scores(best: np.ndarray, wanted: Lists, metrics: tuple[str, ...]) -> np.ndarray:
    """(number of users with a wanted item, number of metrics) float64.

    Args:
        best: (num_users, K) ids, the best first.
        wanted: by user, the ids that should be among them.
    """
    counts = np.diff(wanted.indptr)
    has = np.flatnonzero(counts)
    user = np.repeat(np.arange(len(counts)), counts)
    width = max(int(best.max(initial=0)), int(wanted.ids.max(initial=0))) + 1
    hits = np.isin(best + np.arange(len(best))[:, None] * width, wanted.ids + user * width) & (best >= 0)
    discount = 1 / np.log2(np.arange(2, best.shape[1] + 2))
    gains, ideal = np.cumsum(hits * discount, axis=1), np.cumsum(discount)
    found = np.empty((len(has), len(metrics)))
    for number, name in enumerate(metrics):
        kind, _, k = name.partition("@")
        at = int(k)
        if kind == "recall":
            found[:, number] = hits[has, :at].sum(axis=1) / counts[has]
        else:
            found[:, number] = gains[has, at - 1] / ideal[np.minimum(counts[has], at) - 1]
    return found


def check_fractions(**fractions: float) -> None:
    """Refuse fractions of held-out pairs that leave nothing to train on.

    Raises:
        ConfigError: one line that names the key of the task.
    """
    for key, fraction in fractions.items():
        if not 0 <= fraction < 1:
            raise ConfigError(f"task.{key}={fraction} is out of range: it must lie in [0, 1)")
    if sum(fractions.values()) >= 1:
        raise ConfigError(f"task.{' + task.'.join(fractions)} is at least 1: nothing would be left to train on")


def _metrics(given: list[str] | None) -> tuple[str, ...]:
    names = ("recall@20", "ndcg@20") if given is None else tuple(given)
    return check_metrics(names, ("recall", "ndcg"))


def check_metrics(names: tuple[str, ...], kinds: tuple[str, ...], plain: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Refuse metrics other than those of ``kinds`` at some k, as ``recall@20``, and the ``plain`` ones.

    Raises:
        ConfigError: a metric is not known, or none is given.
    """
    for name in names:
        kind, _, k = str(name).partition("@")
        if name not in plain and not (kind in kinds and k.isdecimal() and int(k) > 0):
            known = ", ".join([*plain, *(f"{kind}@20" for kind in kinds)])
            raise ConfigError(f"task.metrics={list(names)}: {name} is not one of {known}, with any number after the @")
    if not names:
        raise ConfigError("task.metrics is empty: give at least one; the first chooses the best epoch")
    return names
