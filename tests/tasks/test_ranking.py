"""The best items of users and metrics of rankings, with ties and scores that are not finite, against plain loops."""

import itertools

import numpy as np
import pytest
import torch

from fullgnn.config import Config
from fullgnn.distributed import World
from fullgnn.engine import set_up
from fullgnn.graph import Graph
from fullgnn.graph.links import LinkPairs, Lists
from fullgnn.tasks.ranking import (
    ITEMS_AT_ONCE,
    USERS_AT_ONCE,
    BestItems,
    Chunks,
    WantedScores,
    ranking_scores,
)
from fullgnn.telemetry.meter import Meter
from tests.cases import config, layout_overrides
from tests.tasks.draws import bipartite

Pairs = list[tuple[int, int]]


@pytest.mark.parametrize("sorts", [False, True])
def test_the_best_items_in_chunks_of_any_size(sorts: bool) -> None:
    """Scores of few values, so that most items tie; on a CPU the compiled scan, and the sort of other devices."""
    rng = np.random.default_rng(0)
    pairs = LinkPairs.of(bipartite(9, 40, 0.5))
    known = pairs.known.of(np.arange(9))
    scores = torch.from_numpy(rng.choice([0, 1, 2, np.inf, -np.inf, np.nan], (9, 40)).astype(np.float32))
    scores[0] = 1
    masked = scores.numpy().copy()
    masked[np.repeat(np.arange(9), np.diff(known.indptr)), known.ids - 9] = -np.inf
    masked[np.isnan(masked)] = -np.inf
    for k in (1, 3, 25):
        order = np.argsort(-masked, axis=1, kind="stable")[:, :k]
        top = np.take_along_axis(masked, order, 1)
        expected, last = np.where(top > -np.inf, order + 9, -1), top[:, -1:]
        num_tied = np.where(last[:, 0] > -np.inf, (masked == last).sum(axis=1) - (top == last).sum(axis=1), 0)
        for size in (40, 7, 1):
            best = BestItems(9, k, scores)
            for first in range(0, 40, size):
                chunk = range(9 + first, 9 + min(40, first + size))
                for rows in (slice(0, 4), slice(4, 9)):
                    block = torch.full((len(scores[rows]), size), 7.0)  # the last columns stand for no item
                    block[:, : len(chunk)] = scores[rows, first : first + size]
                    best.add(block, rows, chunk, known, sorts)
            np.testing.assert_array_equal(best.ids, expected)
            np.testing.assert_array_equal(best.num_tied, num_tied)


def mean_over_orders(scores: np.ndarray, wanted: set[int], name: str) -> float:
    """The metric of one user, the mean over all orders of the items of which those with equal scores are in any order.

    Args:
        scores: of the items that are ranked. An item whose score is NaN or -Inf is never found.
    """
    kind, _, at = name.partition("@")
    ranked = [item for item in range(len(scores)) if scores[item] > -np.inf]
    metrics = []
    for order in itertools.permutations(ranked):
        best = sorted(order, key=lambda item: -scores[item])[: int(at)]
        if kind == "recall":
            metrics.append(sum(item in wanted for item in best) / len(wanted))
        else:
            ideal = sum(1 / np.log2(place + 2) for place in range(min(len(wanted), int(at))))
            metrics.append(sum(1 / np.log2(place + 2) for place, item in enumerate(best) if item in wanted) / ideal)
    return float(np.mean(metrics))


METRICS = ("recall@1", "ndcg@1", "recall@2", "ndcg@3", "recall@4", "ndcg@4", "ndcg@9")


@pytest.mark.parametrize("sorts", [False, True])
def test_ties_are_the_mean_over_their_orders(sorts: bool) -> None:
    rng = np.random.default_rng(2)
    scores = rng.integers(0, 3, (40, 6)).astype(float)
    scores[5], scores[6, 2:], scores[7] = 1, np.nan, np.nan
    scores[8] = [np.inf, np.inf, 0, -np.inf, 0, np.nan]
    lists = [sorted(rng.choice(6, rng.integers(0, 6), replace=False)) for _ in scores]
    lists[8] = [0, 2, 3, 5]
    wanted = Lists(np.cumsum([0, *map(len, lists)]), np.array([item for ids in lists for item in ids], np.int64))
    items, nothing = Chunks(range(6)), Lists(np.zeros(41, np.int64), np.zeros(0, np.int64))
    best, of_wanted = BestItems(40, 9, torch.from_numpy(scores)), WantedScores(wanted, items, torch.from_numpy(scores))
    of_wanted.take(torch.from_numpy(scores))
    best.add(torch.from_numpy(scores.copy()), slice(0, USERS_AT_ONCE), range(6), nothing, sorts)
    expected = [[mean_over_orders(row, set(ids), name) for name in METRICS] for row, ids in zip(scores, lists) if ids]
    np.testing.assert_allclose(ranking_scores(best, of_wanted, METRICS), expected, rtol=0, atol=1e-12)


def measured(world: World, cfg: Config, graph: Graph, outputs: list[np.ndarray]) -> list[dict[str, float | None]]:
    """The metrics of each of the (num_nodes, num_outputs) outputs."""
    job = set_up(cfg, world, Meter(world.device), graph if world.rank == 0 else None)
    rows = [torch.from_numpy(output).to(world.device)[job.scheme.node_id] for output in outputs]
    return [job.task.measure(output, job.graph, job.scheme) for output in rows]


def with_links(num_users: int, num_items: int, train: Pairs, val: Pairs, test: Pairs) -> Graph:
    user, item = np.array(train).T
    edges = np.stack([np.concatenate([user, item]), np.concatenate([item, user])])
    held = {name: np.array(pairs).reshape(-1, 2).T for name, pairs in (("val_links", val), ("test_links", test))}
    return Graph.from_edge_index(edges, num_nodes=num_users + num_items, num_users=num_users, **held)


LAYOUTS = [(1, 1, []), (3, 1, ["partition=random"]), (4, 2, ["scheme.split_rows=false"])]
"""Processes, replication, and further overrides."""


@pytest.mark.parametrize(("world_size", "replication", "overrides"), LAYOUTS)
def test_ties_of_a_run_are_the_mean_over_their_orders(
    ranks, world_size: int, replication: int, overrides: list[str]
) -> None:
    """Small integers, so that scores are exact. The order of the items' ids changes nothing."""
    rng, num_users, num_items = np.random.default_rng(4), 9, 7
    kinds = rng.choice(4, (num_users, num_items), p=[0.4, 0.2, 0.2, 0.2])  # nothing, train, val, test
    kinds[:, 0], kinds[0, 1:] = 1, 0  # every user trains with one item; the first user has no wanted item
    outputs = [rng.integers(-1, 2, (num_users + num_items, 2)).astype(np.float32) for _ in range(3)]
    outputs[1][num_users:] = 1
    outputs[2][num_users + 3], outputs[2][2] = np.nan, np.nan

    def problem(place: np.ndarray) -> tuple[Graph, list[np.ndarray]]:
        """The item i with the id num_users + place[i]."""
        pairs = [[(u, num_users + place[i]) for u, i in zip(*np.nonzero(kinds == kind))] for kind in (1, 2, 3)]
        moved = [output.copy() for output in outputs]
        for moved_output, output in zip(moved, outputs):
            moved_output[num_users + place] = output[num_users:]
        return with_links(num_users, num_items, *pairs), moved

    cfg = config(
        *layout_overrides(replication), *overrides, "task=link_ranking", f"task.metrics=[{','.join(METRICS)}]",
        "model=lightgcn", "task.channels=2",
    )  # fmt: skip
    plain, moved = (
        ranks(world_size)(measured, cfg, *problem(place)) for place in (np.arange(7), np.array([6, 2, 0, 5, 1, 3, 4]))
    )
    for number, output in enumerate(outputs):
        for name in METRICS:
            for split, kind in (("val", 2), ("test", 3)):
                values = []
                for user in range(num_users):
                    free = np.flatnonzero(kinds[user] != 1)
                    wanted = set(np.flatnonzero(kinds[user, free] == kind))
                    scores = output[num_users + free] @ output[user]
                    values += [mean_over_orders(scores, wanted, name)] if wanted else []
                for outcome in (*plain, *moved):
                    assert outcome[number][f"{split}_{name}"] == pytest.approx(np.mean(values), abs=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_items_with_equal_rows_tie_wherever_they_stand(ranks, dtype: str) -> None:
    """The items fill one chunk and a little of the next one, and their rows are equal but not small integers: each
    wanted item is among the k best with probability k / number of items that are ranked."""
    num_users, num_items = 5, ITEMS_AT_ONCE + 3
    train = [(user, num_users + user) for user in range(num_users)]
    test = [(user, num_users + num_items - 1 - user) for user in range(num_users)]
    output = np.random.default_rng(0).standard_normal((num_users + num_items, 64)).astype(dtype)
    output[num_users:] = output[-1]
    cfg = config("task=link_ranking", "task.metrics=[recall@20,ndcg@20]", "model=lightgcn", f"runtime.dtype={dtype}")
    for (metrics,) in ranks(2)(measured, cfg, with_links(num_users, num_items, train, [], test), [output]):
        chance = 1 / (num_items - 1)
        assert metrics["test_recall@20"] == pytest.approx(20 * chance, rel=1e-12)
        gain = sum(1 / np.log2(place + 2) for place in range(20))
        assert metrics["test_ndcg@20"] == pytest.approx(gain * chance, rel=1e-12)


def test_a_held_out_edge_whose_score_is_nan_is_ranked_last(ranks) -> None:
    graph = with_links(3, 4, [(0, 3), (1, 4), (2, 5)], [(2, 6)], [(0, 4), (1, 5)])
    outputs = [np.full((7, 2), np.nan, np.float32), np.ones((7, 2), np.float32)]
    outputs.append(outputs[1].copy())
    outputs[2][4] = np.nan  # the partner of one of the two pairs
    cfg = config("task=link_prediction", "task.metrics=[mrr,hits@1]", "task.num_candidates=1", "model=lightgcn")
    for all_nan, equal, one_nan in ranks(2)(measured, cfg, graph, outputs):
        assert (all_nan["test_mrr"], all_nan["test_hits@1"]) == (0, 0)
        assert (equal["test_mrr"], equal["test_hits@1"]) == (1 / 1.5, 0)
        assert (one_nan["test_mrr"], one_nan["test_hits@1"]) == (1 / 1.5 / 2, 0)
