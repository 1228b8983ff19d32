"""PaGraph's parts against the formula of the paper, with sets and fractions in loops."""

from fractions import Fraction

import numpy as np
import pytest

from fullgnn.errors import ConfigError
from fullgnn.sampling.neighbors import NeighborSampler
from fullgnn.sampling.pagraph import CrossFreeParts, cross_partition_free
from tests.cases import dense_graph


def reads(indptr: np.ndarray, indices: np.ndarray, node: int, num_hops: int) -> set[int]:
    """A node, and what it reads in at most ``num_hops`` hops."""
    found = {node}
    for _ in range(num_hops):
        found |= {int(other) for one in found for other in indices[indptr[one] : indptr[one + 1]]}
    return found


def expected(indptr, indices, train, num_parts: int, num_hops: int) -> tuple[list[set[int]], list[set[int]]]:
    """TV_i and PV_i."""
    targets, nodes = [set() for _ in range(num_parts)], [set() for _ in range(num_parts)]
    average = -(-len(train) // num_parts)
    for node in map(int, train):
        near = reads(indptr, indices, node, num_hops)

        scores = [
            Fraction(len(own & near) * (average - len(own)), max(1, len(held))) for own, held in zip(targets, nodes)
        ]
        best = max((score, -len(targets[part]), -part) for part, score in enumerate(scores))[2] * -1
        targets[best].add(node)
        nodes[best] |= near
    return targets, nodes


def random_graph(num_nodes: int, mean_degree: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A directed graph with hubs, isolated nodes and self-loops."""
    random = np.random.default_rng(seed)
    degree = random.poisson(mean_degree, num_nodes) * (random.random(num_nodes) < 0.9)
    weight = 1 / np.arange(1, num_nodes + 1)
    rows = [np.sort(random.choice(num_nodes, min(int(d), num_nodes), False, weight / weight.sum())) for d in degree]
    return np.concatenate([[0], np.cumsum([len(row) for row in rows])]), np.concatenate(rows).astype(np.int32)


def check(found: CrossFreeParts, indptr: np.ndarray, indices: np.ndarray, num_hops: int) -> None:
    targets, nodes = expected(indptr, indices, found.train, found.num_parts, num_hops)
    for part in range(found.num_parts):
        assert {*found.train[found.part == part].tolist()} == targets[part]
        assert {*found.nodes(part).tolist()} == nodes[part] and found.num_nodes[part] == len(nodes[part])
    held = set().union(*nodes)
    copies = sum(map(len, nodes)) - len(held)
    assert found.redundancy == pytest.approx(copies / found.num_parts / (len(indptr) - 1))
    assert found.num_train.tolist() == [len(one) for one in targets]


@pytest.mark.parametrize("num_parts", [1, 2, 3, 8, 65])
@pytest.mark.parametrize("num_hops", [0, 1, 2, 3])
def test_parts_are_those_of_the_formula(num_parts: int, num_hops: int) -> None:
    for seed, degree in ((0, 1.5), (1, 4.0)):
        indptr, indices = random_graph(120, degree, seed)
        train = np.sort(np.random.default_rng(seed).choice(120, 78, replace=False))
        check(cross_partition_free(indptr, indices, train, num_parts, num_hops), indptr, indices, num_hops)


@pytest.mark.parametrize("kind", ["directed", "symmetric", "tiny"])
def test_small_graphs(kind: str) -> None:
    graph = dense_graph(kind).graph()
    train = np.flatnonzero(graph.train_mask)
    for some in (train, train[:0], train[:1]):
        found = cross_partition_free(graph.indptr.astype(np.int64), graph.indices, some, 3, 2)
        check(found, graph.indptr, graph.indices, 2)
    with pytest.raises(ConfigError, match="a graph cannot be cut into 0 parts: choose 1 or more"):
        cross_partition_free(graph.indptr, graph.indices, train, 0, 2)


@pytest.mark.parametrize("num_parts", [2, 4, 8])
def test_no_part_reads_another_one_and_parts_are_balanced(num_parts: int) -> None:
    indptr, indices = random_graph(20_000, 3.0, 2)
    train = np.sort(np.random.default_rng(0).choice(20_000, 13_000, replace=False))
    found = cross_partition_free(indptr, indices, train, num_parts, 2)
    assert found.imbalance < 1.02 and found.num_train.min() > 0.98 * len(train) / num_parts
    sampler = NeighborSampler(indptr, indices, [3, 3])
    for part in range(num_parts):
        held = np.zeros(20_000, bool)
        held[found.nodes(part)] = True
        for epoch in (1, 2):
            for hop in sampler.sample(train[found.part == part], epoch):
                assert held[hop.sources].all()
    assert found.redundancy > 0
