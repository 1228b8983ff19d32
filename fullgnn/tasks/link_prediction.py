"""Link prediction: tell the edges of a graph from pairs that are not joined."""

from typing import Optional

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fullgnn.errors import ConfigError
from fullgnn.graph import Graph
from fullgnn.graph.links import LinkFacts
from fullgnn.graph.links import hold_out as hold_out_pairs
from fullgnn.kernels.pairs.scores import pair_scores
from fullgnn.kernels.support import gpu
from fullgnn.kernels.support.to_device import move
from fullgnn.schemes.base import Scheme, ShardedGraph
from fullgnn.tasks.draws import EVALUATION, draw, stream_key
from fullgnn.tasks.link_ranking import check_fractions, check_metrics
from fullgnn.tasks.links import LinkTask, directory_of, find_partners, pairs_of
from fullgnn.tasks.task import SPLITS, TaskContract, by_split, states

SCORES_AT_ONCE, SCORES_ON_GPU = 1 << 18, 1 << 20
"""About how many scores of held-out pairs and their candidates exist at a time on all ranks together, on CPUs and on
GPUs."""


def hold_out(graph: Graph, val_fraction: float = 0.05, test_fraction: float = 0.1, split_seed: int = 0) -> Graph:
    """``graph`` with fractions of its edges taken out, for validation and for testing; a split that it has is kept."""
    check_fractions(val_fraction=val_fraction, test_fraction=test_fraction)
    return hold_out_pairs(graph, val_fraction, test_fraction, split_seed)


@states(TaskContract(finds_links=True, hold_out=hold_out))
def link_prediction(
    links: LinkFacts,
    metrics: Optional[list[str]] = None,
    batch_size: Optional[int] = None,
    num_negatives: int = 1,
    num_candidates: int = 100,
    channels: int = 64,
    val_fraction: float = 0.05,
    test_fraction: float = 0.1,
    split_seed: int = 0,
    seed: int = 0,
) -> "LinkPrediction":
    """Build the task.

    Args:
        metrics: of mrr and hits@k with any k, by default mrr, hits@10 and hits@50; the first chooses the best epoch.
        batch_size, channels, num_negatives, seed: see ``LinkTask``.
        num_candidates: see ``LinkPrediction``.
        val_fraction, test_fraction, split_seed: see ``hold_out``.

    Raises:
        ConfigError: a key is out of range.
    """
    names = check_metrics(
        ("mrr", "hits@10", "hits@50") if metrics is None else tuple(metrics), ("hits",), plain=("mrr",)
    )
    check_fractions(val_fraction=val_fraction, test_fraction=test_fraction)
    return LinkPrediction(links, names, batch_size, num_negatives, num_candidates, channels, seed)


class LinkPrediction(LinkTask):
    """Each draw is a pair of joined nodes and ``num_negatives`` others that its owner, the one with the lower id, is
    not joined with. The loss is the binary cross-entropy, the mean over these scores.

    For the metrics, each held-out pair is ranked among ``num_candidates`` pairs of its owner with nodes that the owner
    is not joined with, neither in training nor in a held-out pair. They are drawn with repetitions, and are the same in
    every evaluation. The rank is 1 plus the number of candidates with a higher score, plus half of those with an equal
    one; that of a pair whose score is NaN is infinite. ``mrr`` is the mean of 1 / rank, and ``hits@k`` the fraction of
    ranks of at most k. A pair whose owner is joined with every node does not count.
    """

    def __init__(
        self,
        links: LinkFacts,
        metrics: tuple[str, ...] = ("mrr", "hits@10", "hits@50"),
        batch_size: int | None = None,
        num_negatives: int = 1,
        num_candidates: int = 100,
        channels: int = 64,
        seed: int = 0,
    ):
        super().__init__(links, channels, num_negatives, batch_size, seed)
        if num_candidates < 1:
            raise ConfigError(f"task.num_candidates={num_candidates} is too small: it must be at least 1")
        self.metrics, self._num_candidates = metrics, num_candidates

    def losses(self, scores: Tensor) -> Tensor:
        """See ``LinkTask.losses``."""
        signed = torch.cat([-scores[:, :1], scores[:, 1:]], dim=1)
        return functional.softplus(signed).mean(dim=1)

    def measure(self, output: Tensor, graph: ShardedGraph, scheme: Scheme) -> dict[str, float | None]:
        """See ``Task.measure``; there are no metrics of the training pairs."""
        sums = torch.zeros(2, 1 + len(self.metrics), dtype=torch.float64, device=output.device)
        for number in (1, 2):
            ranks = self.ranks(output, graph, number)
            sums[number - 1, 0].fill_(len(ranks))
            for place, name in enumerate(self.metrics, 1):
                kind, _, k = name.partition("@")
                sums[number - 1, place] = (1 / ranks).sum() if kind == "mrr" else (ranks <= int(k)).sum()
        means: dict[str, float | None] = {f"train_{name}": None for name in self.metrics}
        for split, (count, *totals) in zip(SPLITS[1:], scheme.sum_over_rows(sums).tolist()):
            means |= {f"{split}_{name}": total / count if count else None for name, total in zip(self.metrics, totals)}
        return by_split(self.metrics, means)

    @torch.no_grad()
    def ranks(self, output: Tensor, graph: ShardedGraph, split: int) -> Tensor:
        """(number of pairs,) float64, the ranks of the held-out pairs of this rank's rows. Every rank calls it.

        Args:
            output: (num_local_nodes, num_outputs).
            split: 1 for validation, 2 for testing.
        """
        pairs, width = pairs_of(graph), 1 + self._num_candidates
        own, total = ((pairs.val, self.links.num_val), (pairs.test, self.links.num_test))[split - 1]
        drawn = draw(
            own,
            pairs.first[split],
            pairs.held,
            self.links,
            stream_key(self._seed, EVALUATION),
            split,
            self._num_candidates,
            max(1, (SCORES_AT_ONCE if gpu.runs_host_loops(output.device) else SCORES_ON_GPU) // width),
            total,
        )
        ids = np.concatenate([drawn.partner[:, None], drawn.negatives], axis=1).ravel()
        owner = move(torch.from_numpy(np.repeat(drawn.row, width)), output.device)
        places, requests = find_partners(graph, ids, drawn.starts * width)
        ranks = [torch.empty(0, dtype=torch.float64, device=output.device)]
        for begin, end, request in zip(drawn.starts * width, drawn.starts[1:] * width, requests):
            partners = None if request is None else directory_of(graph).rows(output, request)
            scores = pair_scores(output, owner[begin:end], partners, places[begin:end]).view(-1, width)
            higher = (scores[:, 1:] > scores[:, :1]).sum(dim=1)
            equal = (scores[:, 1:] == scores[:, :1]).sum(dim=1)
            rank = 1 + higher + equal.double() / 2
            ranks.append(rank.masked_fill(scores[:, 0].isnan(), float("inf")))
        return torch.cat(ranks)
