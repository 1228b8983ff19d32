"""Every method keeps the common promises on every tiny graph; then each method serves its own purpose."""

from functools import partial
from pathlib import Path

import hydra
import numpy as np
import pytest
from omegaconf import OmegaConf
from scipy import sparse

from fullgnn import reorder
from fullgnn.partition import Partition
from fullgnn.partition.counts import bandwidth, edge_cut
from fullgnn.partition.pattern import undirected

METHODS = {
    "none": reorder.none,
    "shuffle": reorder.shuffle,
    "degree": reorder.degree,
    "rcm": reorder.rcm,
    "slashburn": partial(reorder.slashburn, hub_share=0.3),
    "metis": partial(reorder.metis, cluster_size=2),
}
CONF = Path(__file__).parents[2] / "conf"


@pytest.fixture(params=METHODS.values(), ids=METHODS.keys())
def method(request: pytest.FixtureRequest):
    return request.param


def permuted(adj: sparse.csr_array, perm: np.ndarray) -> sparse.csr_array:
    return adj[perm][:, perm].tocsr()


@pytest.mark.sample(5)
def test_returns_an_int64_permutation_and_leaves_the_graph_alone(method, tiny_graph) -> None:
    before = tiny_graph.copy()
    perm = method(tiny_graph, 0)
    assert perm.dtype == np.int64 and np.array_equal(np.sort(perm), np.arange(tiny_graph.shape[0]))
    for name in ("indptr", "indices", "data"):
        assert np.array_equal(getattr(tiny_graph, name), getattr(before, name))


def test_same_seed_same_order(method, planted) -> None:
    assert np.array_equal(method(planted, 7), method(planted.copy(), 7))


def test_accepts_64_bit_indices(method, planted) -> None:
    wide = planted.copy()
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    assert np.array_equal(method(wide, 0), method(planted, 0))


@pytest.mark.parametrize("name", ["rcm", "slashburn", "metis"])
def test_direction_weights_and_self_loops_do_not_matter(name: str, planted) -> None:
    rng = np.random.default_rng(1)
    one_way = sparse.triu(planted).tocsr()  # each edge in one direction only
    one_way.data[:] = rng.standard_normal(one_way.nnz)
    loops = sparse.diags_array(rng.integers(0, 2, planted.shape[0]).astype(np.float32))
    assert np.array_equal(METHODS[name](planted, 0), METHODS[name]((one_way + loops).tocsr(), 0))


@pytest.mark.parametrize("directed", [False, True])
def test_undirected_is_the_pattern_of_a_plus_its_transpose(directed: bool) -> None:
    dense = np.random.default_rng(2).integers(-2, 2, (40, 40))  # its entries can cancel in A + A^T
    dense = dense if directed else dense + dense.T
    pattern = undirected(sparse.csr_array(dense))
    expected = (dense != 0) | (dense.T != 0)
    np.fill_diagonal(expected, False)
    assert np.array_equal(pattern.toarray(), expected)
    assert pattern.nnz == expected.sum() and pattern.has_sorted_indices


def test_undirected_merges_repeated_entries() -> None:
    columns = np.array([1] * 256 + [0], dtype=np.int32)  # 256 copies of the edge 0 -> 1: in 8 bits their sum is 0
    adj = sparse.csr_array((np.ones(257), columns, np.array([0, 256, 257])), shape=(2, 2))
    assert undirected(adj).toarray().tolist() == [[False, True], [True, False]] and undirected(adj).nnz == 2


def test_none_keeps_the_order_and_shuffle_follows_the_seed(planted) -> None:
    assert np.array_equal(reorder.none(planted, 0), np.arange(1000))
    assert not np.array_equal(reorder.shuffle(planted, 0), reorder.shuffle(planted, 1))


def test_degree_descends_and_is_stable(planted) -> None:
    perm = reorder.degree(planted, 0)
    degree = np.diff(planted.indptr)[perm]
    assert np.all(degree[1:] <= degree[:-1])
    assert np.all((degree[1:] < degree[:-1]) | (perm[1:] > perm[:-1]))


def test_rcm_finds_a_shuffled_path_and_lowers_the_bandwidth_of_a_grid(grid) -> None:
    perm = np.random.default_rng(3).permutation(100)
    step = np.arange(99)
    path = sparse.coo_array((np.ones(99), (step, step + 1)), shape=(100, 100)).tocsr()
    path = permuted((path + path.T).tocsr(), perm)
    assert bandwidth(path) > 50 and bandwidth(permuted(path, reorder.rcm(path, 0))) == 1
    assert bandwidth(grid) > 500 and bandwidth(permuted(grid, reorder.rcm(grid, 0))) <= 35


@pytest.mark.parametrize("name", ["none", "shuffle", "degree", "slashburn", "rcm", "metis"])
def test_yaml_names_the_function_of_the_package(name: str) -> None:
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        config = hydra.compose(overrides=[f"+reorder={name}"])
    values = OmegaConf.to_container(config.reorder, resolve=True)
    assert values["name"] == name
    assert {key: values[key] for key in ("scope", "num_blocks", "cluster_size")} == {
        "scope": "block",
        "num_blocks": None,
        "cluster_size": 200,
    }
    method = hydra.utils.instantiate(config.reorder.method)
    assert method.func is getattr(reorder, name)
    keywords = {"metis": {"cluster_size": 200}, "slashburn": {"hub_share": 0.005}}
    assert method.keywords == keywords.get(name, {})


def test_metis_lowers_the_edge_cut(planted) -> None:
    chunks = Partition.equal(1000, 20)
    assert edge_cut(planted, chunks) > 0.9
    assert edge_cut(permuted(planted, reorder.metis(planted, 0, cluster_size=50)), chunks) < 0.25
