"""Clusters as batches: the subgraphs that they induce, and what layers multiply by."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from fullgnn.errors import ConfigError
from fullgnn.graph import EdgeSet, Graph, Propagation
from fullgnn.sampling.blocks import BlockMaker
from fullgnn.sampling.clusters import BOUNDS, ORDER, ClusterBatches, cluster, prepare_clusters
from fullgnn.sampling.host_graph import HostGraph
from fullgnn.schemes import BlockRequest
from tests.oracle import normalize

NUM_NODES, NUM_CLUSTERS = 60, 9
NEEDS = BlockRequest(
    tuple(Propagation(name, loops) for name in ("sym", "row", "none") for loops in (True, False)),
    edges=(EdgeSet(False), EdgeSet(True)),
)


def graph_of(weighted: bool) -> tuple[np.ndarray, Graph]:
    """Communities, with self-loops and one isolated node."""
    rng = np.random.default_rng(4)
    community = np.arange(NUM_NODES) % 6
    near = community[:, None] == community
    adj = (rng.random((NUM_NODES, NUM_NODES)) < np.where(near, 0.5, 0.06)).astype(float)
    adj[11] = adj[:, 11] = 0
    if weighted:
        adj *= rng.integers(1, 9, adj.shape) / 8
    train = rng.random(NUM_NODES) < 0.4
    return adj, Graph.from_scipy(csr_array(adj), features=np.eye(NUM_NODES), train_mask=train, labels=community)


def batches_of(graph: Graph, num_hops: int, group_size: int) -> ClusterBatches:
    extra = prepare_clusters(graph, 1, NUM_CLUSTERS, group_size)
    return cluster(HostGraph.of(graph, NEEDS, "float64", extra), num_hops, 0, NUM_CLUSTERS, group_size)


def test_clusters_are_all_nodes_once_and_cut_few_edges() -> None:
    adj, graph = graph_of(weighted=False)
    clusters = prepare_clusters(graph, 1, 6)
    assert np.array_equal(np.sort(clusters[ORDER]), np.arange(NUM_NODES)) and len(clusters[BOUNDS]) == 7
    part = np.empty(NUM_NODES, int)
    part[clusters[ORDER]] = np.repeat(np.arange(6), np.diff(clusters[BOUNDS]))
    target, source = np.nonzero(adj)
    assert (part[target] == part[source]).mean() > 0.5  # of random clusters, a sixth
    assert np.array_equal(prepare_clusters(graph, 1, 6)[ORDER], clusters[ORDER])
    for number in (1, NUM_NODES):
        clusters = prepare_clusters(graph, 1, number)
        assert len(clusters[BOUNDS]) == number + 1 and np.array_equal(np.sort(clusters[ORDER]), np.arange(NUM_NODES))


@pytest.mark.parametrize("weighted", [False, True], ids=["pattern", "weights"])
@pytest.mark.parametrize("group_size", [1, 2, 4])
def test_blocks_are_the_normalised_subgraphs_of_the_groups(weighted: bool, group_size: int) -> None:
    adj, graph = graph_of(weighted)
    batches = batches_of(graph, 3, group_size)
    items = np.array([7, 2, 5, 0, 8])
    nodes = [
        np.concatenate([_cluster(batches, item) for item in items[i : i + group_size]]) for i in range(0, 5, group_size)
    ]
    sources = np.sort(np.concatenate(nodes))
    group = np.full(NUM_NODES, -1)
    for number, members in enumerate(nodes):
        group[members] = number
    masked = adj * (group[:, None] == group)  # the edges inside a group
    sub = masked[np.ix_(sources, sources)]
    targets = batches.targets(items)
    assert targets.tolist() == [v for v in sources.tolist() if graph.train_mask[v]]
    hops = batches.sample(items, 1)
    blocks = BlockMaker(batches.graph, NEEDS, torch.float64, torch.device("cpu")).blocks(hops, targets)
    assert len(blocks) == 3 and blocks[0] is blocks[1] and blocks[-1].own_id.tolist() == targets.tolist()
    for block, rows in ((blocks[0], sources), (blocks[-1], targets)):
        assert block.source_id.tolist() == sources.tolist() and block.own_id.tolist() == rows.tolist()
        for kind in NEEDS.propagations:
            wanted = torch.from_numpy(normalize(sub, kind.normalization, kind.self_loops)[np.isin(sources, rows)])
            product = block.product(kind)
            torch.testing.assert_close(product.multiply(torch.eye(len(sources)).double()), wanted)
            torch.testing.assert_close(product.multiply_t(torch.eye(len(rows)).double()), wanted.T.contiguous())
        for edge_set in NEEDS.edges:
            stored = sub.copy()
            if edge_set.self_loops:
                np.fill_diagonal(stored, 1)
            (stage,) = block.stages(edge_set)
            values = np.ones(stage.csr.nnz) if stage.csr.values is None else stage.csr.values.numpy()
            shape = len(rows), len(sources)
            matrix = csr_array((values, stage.csr.indices.numpy(), stage.csr.indptr.numpy()), shape).toarray()
            assert np.array_equal(matrix, stored[np.isin(sources, rows)])
            assert stage.factor is not None and (stage.factor == 1).all()


def _cluster(batches: ClusterBatches, item: int) -> np.ndarray:
    return batches.order[batches.bounds[item] : batches.bounds[item + 1]]


def test_groups_stay_whole_on_any_number_of_ranks() -> None:
    _, graph = graph_of(weighted=False)
    batches, batch = batches_of(graph, 2, 2), np.array([3, 1, 8, 0, 5, 7, 2])
    pairs = {(3, 1), (8, 0), (5, 7), (2,)}
    for num_ranks in (1, 2, 3, 5):
        parts = [batches.part(batch, rank, num_ranks).tolist() for rank in range(num_ranks)]
        assert sum(parts, []) == batch.tolist()
        assert {tuple(part[i : i + 2]) for part in parts for i in range(0, len(part), 2)} == pairs


def test_an_empty_part_and_no_hops() -> None:
    _, graph = graph_of(weighted=True)
    hops = batches_of(graph, 2, 1).sample(np.empty(0, np.int64), 1)
    assert [(len(hop.sources), hop.num_edges) for hop in hops] == [(0, 0)] * 2
    assert batches_of(graph, 0, 1).sample(np.array([1]), 1) == []


def test_bad_keys_end_with_one_line() -> None:
    _, graph = graph_of(weighted=False)
    for number in (0, NUM_NODES + 1):
        with pytest.raises(ConfigError, match=rf"sampler\.num_clusters={number} is out of range: choose 1 to 60"):
            prepare_clusters(graph, 0, number)
    for size in (0, 6):
        with pytest.raises(ConfigError, match=rf"sampler\.group_size={size} is out of range: choose 1 to 5"):
            prepare_clusters(graph, 0, 5, size)
