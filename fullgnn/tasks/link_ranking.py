"""Rank items for users: Bayesian personalised ranking (Rendle et al., 2009), Recall@k and NDCG@k.

The metrics rank, for each user, all items that the user has not been trained with (``ranking.py``): the items are read
chunk by chunk, and the rows of a chunk arrive on every rank, which scores them for its own users.
"""

from typing import Optional

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fullgnn.errors import ConfigError, DataError
from fullgnn.graph import Graph
from fullgnn.graph.links import LinkFacts
from fullgnn.graph.links import hold_out as hold_out_pairs
from fullgnn.kernels.support import gpu
from fullgnn.kernels.support.to_device import move
from fullgnn.schemes.base import Scheme, ShardedGraph
from fullgnn.tasks.links import LinkTask, directory_of, pairs_of
from fullgnn.tasks.ranking import BestItems, BlockPlaces, Chunks, WantedScores, ranking_sums, users_at_once
from fullgnn.tasks.task import SPLITS, TaskContract, by_split, states


def hold_out(graph: Graph, val_fraction: float = 0.0, split_seed: int = 0) -> Graph:
    """``graph`` with a fraction of its interactions taken out for validation, unless it has ``val_links`` already."""
    check_fractions(val_fraction=val_fraction)
    return hold_out_pairs(graph, val_fraction, 0.0, split_seed)


@states(TaskContract(finds_links=True, hold_out=hold_out))
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


class LinkRanking(LinkTask):
    """Each draw is a user u, an item i of the user's training items, and one other item j, with the loss
    softplus(s_uj - s_ui), the mean over the draws of a step.

    Metrics are means over the users with an item of the split: ``recall@k`` is the fraction of these items among the k
    best ones, and ``ndcg@k`` the discounted cumulative gain over that of a perfect ranking. Both are means over all
    orders of items with equal scores. An item whose score is NaN or -Inf is never among the best ones.
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
        self._chunks = Chunks(links.candidates)
        self._largest_k = max(int(name.partition("@")[2]) for name in metrics)

    def losses(self, scores: Tensor) -> Tensor:
        """See ``LinkTask.losses``."""
        return functional.softplus(scores[:, 1] - scores[:, 0])

    def measure(self, output: Tensor, graph: ShardedGraph, scheme: Scheme) -> dict[str, float | None]:
        """See ``Task.measure``; there are no metrics of the training pairs."""
        pairs = pairs_of(graph)
        rows = np.flatnonzero(np.diff(pairs.val.indptr) + np.diff(pairs.test.indptr))
        splits = [WantedScores(split.of(rows), self._chunks, output) for split in (pairs.val, pairs.test)]
        best = self._rank(output, graph, self._largest_k, rows, splits)
        sums = torch.zeros(2, 1 + len(self.metrics), dtype=torch.float64, device=output.device)
        for number, wanted in enumerate(splits):
            sums[number] = ranking_sums(best, wanted, self.metrics)
        means: dict[str, float | None] = {f"train_{name}": None for name in self.metrics}
        for split_name, (count, *totals) in zip(SPLITS[1:], scheme.sum_over_rows(sums).tolist()):
            means |= {
                f"{split_name}_{name}": total / count if count else None for name, total in zip(self.metrics, totals)
            }
        return by_split(self.metrics, means)

    @torch.no_grad()
    def _rank(
        self, output: Tensor, graph: ShardedGraph, k: int, rows: np.ndarray, wanted: list[WantedScores]
    ) -> BestItems:
        """The best k items of the users of the LOCAL ``rows``. ``wanted`` gets the scores of its items."""
        pairs, directory, device = pairs_of(graph), directory_of(graph), output.device
        known, users = pairs.known.of(rows), output[move(torch.from_numpy(rows), device)]
        best, step, number = BestItems(len(rows), k, output), users_at_once(device), 0
        masked = None if gpu.runs_host_loops(device) else BlockPlaces(known, self._chunks, device)
        for chunk in self._chunks.ranges:
            items = directory.fetch_stretch(output, chunk)
            columns = functional.pad(items, (0, 0, 0, self._chunks.width - len(chunk))).T
            for begin in range(0, len(rows), step):
                some = slice(begin, begin + step)
                scores = users[some] @ columns
                for split in wanted:
                    split.take(scores)
                best.add(scores, some, chunk, known, masked=None if masked is None else masked.of(number))
                number += 1
        return best


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
