"""Every partitioner keeps the common promises on every tiny graph; then each one serves its own purpose."""

import inspect
import itertools
import logging
import os
import sys
from pathlib import Path

import hydra
import numpy as np
import pymetis
import pytest
from omegaconf import OmegaConf
from scipy import sparse

from fullgnn import partition
from fullgnn.config.compose import compose
from fullgnn.errors import ConfigError, PartitionError
from fullgnn.graph import load_dataset
from fullgnn.partition import Cut, Partition
from fullgnn.partition.counts import edge_cut
from fullgnn.partition.kway import kway
from fullgnn.partition.nnz import balanced, row_weight
from fullgnn.partition.partition import imbalance

PARTITIONERS = {name: getattr(partition, name) for name in ("contiguous", "random", "nnz", "metis")}
CONF = Path(__file__).parents[2] / "conf" / "partition"
LOOK_ALIKES = {"reddit-like": 0.02, "proteins-like": 0.05, "archaea-like": 0.2, "products-like": 1}  # with degree_scale


@pytest.fixture(params=PARTITIONERS.values(), ids=PARTITIONERS.keys())
def partitioner(request: pytest.FixtureRequest):
    return request.param


def every_third(adj: sparse.csr_array) -> np.ndarray:
    return np.arange(adj.shape[0]) % 3 == 0


def part_loads(cut: Cut, weight: np.ndarray) -> np.ndarray:
    """(num_parts,), the sum of ``weight`` (by old ids) over each part."""
    rows = map(cut.partition.slice, range(cut.partition.num_parts))
    return np.array([weight[cut.perm[part]].sum() for part in rows])


def permuted(adj: sparse.csr_array, perm: np.ndarray) -> sparse.csr_array:
    return adj[perm][:, perm].tocsr()


@pytest.mark.sample(7)
@pytest.mark.parametrize("num_parts", [1, 2, 3, 8, 20])
def test_every_node_is_in_one_part_in_order_and_the_graph_is_left_alone(partitioner, num_parts, tiny_graph) -> None:
    before, train_mask = tiny_graph.copy(), every_third(tiny_graph)
    cut = partitioner(tiny_graph, train_mask, num_parts, 0)
    assert cut.perm.dtype == np.int64 and np.array_equal(np.sort(cut.perm), np.arange(tiny_graph.shape[0]))
    assert (cut.partition.num_parts, cut.partition.num_nodes) == (num_parts, tiny_graph.shape[0])
    for part in range(num_parts):
        assert np.all(np.diff(cut.perm[cut.partition.slice(part)]) > 0)
    assert cut.used in (partitioner.__name__, "nnz")
    assert np.array_equal(train_mask, every_third(tiny_graph))
    for name in ("indptr", "indices", "data"):
        assert np.array_equal(getattr(tiny_graph, name), getattr(before, name))


def test_same_seed_same_cut(partitioner, planted) -> None:
    first, second = (partitioner(adj, every_third(adj), 4, 7) for adj in (planted, planted.copy()))
    assert np.array_equal(first.perm, second.perm)
    assert np.array_equal(first.partition.bounds, second.partition.bounds)


@pytest.mark.parametrize("name", ["random", "metis"])
def test_another_seed_another_cut(name: str, planted) -> None:
    perms = [PARTITIONERS[name](planted, every_third(planted), 4, seed).perm for seed in (0, 1, 2**62 + 5)]
    assert len({perm.tobytes() for perm in perms}) == 3


def test_accepts_64_bit_indices(partitioner, planted) -> None:
    wide = planted.copy()
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    first, second = (partitioner(adj, every_third(adj), 4, 0) for adj in (planted, wide))
    assert np.array_equal(first.perm, second.perm)


def test_refuses_no_part_and_a_rectangle(partitioner, planted) -> None:
    with pytest.raises(PartitionError, match="at least 1 part"):
        partitioner(planted, every_third(planted), 0, 0)
    with pytest.raises(PartitionError, match="square"):
        partitioner(planted[:5], every_third(planted), 2, 0)


@pytest.mark.parametrize("name", PARTITIONERS)
def test_yaml_names_the_function_and_gives_its_defaults(name: str) -> None:
    node = OmegaConf.load(CONF / f"{name}.yaml")
    assert node.pop("name") == name
    partitioner = hydra.utils.instantiate(node)
    assert partitioner.func is PARTITIONERS[name]
    own = list(inspect.signature(partitioner.func).parameters.values())[4:]
    assert partitioner.keywords == {parameter.name: parameter.default for parameter in own}
    assert {path.stem for path in CONF.glob("*.yaml")} == set(PARTITIONERS)


@pytest.mark.parametrize("num_parts", [1, 3, 7])
def test_contiguous_and_random_have_equal_sizes(num_parts: int, planted) -> None:
    contiguous, random = (PARTITIONERS[name](planted, None, num_parts, 0) for name in ("contiguous", "random"))
    assert np.array_equal(contiguous.perm, np.arange(1000))
    for cut in (contiguous, random):
        assert np.array_equal(cut.partition.bounds, Partition.equal(1000, num_parts).bounds)
    in_first = random.perm[random.partition.slice(0)]
    assert num_parts == 1 or 0.3 < np.mean(in_first < 500) < 0.7


def test_row_weight_counts_the_diagonal_once() -> None:
    adj = sparse.csr_array(np.array([[0, 1, 1], [0, -2, 0], [0, 0, 0]]))
    assert row_weight(adj).tolist() == [3, 1, 1]


@pytest.mark.parametrize("num_parts", [1, 2, 3, 4])
@pytest.mark.parametrize("num_rows", [0, 1, 2, 5, 9])
def test_no_consecutive_parts_are_lighter_than_those_of_nnz(num_rows: int, num_parts: int) -> None:
    rng = np.random.default_rng(num_rows)
    for largest in (2, 5, 100):
        weight = rng.integers(1, largest, num_rows)
        inner = itertools.combinations_with_replacement(range(num_rows + 1), num_parts - 1)
        loads = [[weight[a:b].sum() for a, b in itertools.pairwise((0, *bounds, num_rows))] for bounds in inner]
        assert part_loads(Cut.consecutive(balanced(weight, num_parts), ""), weight).max() == min(map(max, loads))


def test_nnz_leaves_no_part_nearly_empty() -> None:
    """Filling each part as far as allowed would give 3, 3, 3 and 1 nodes."""
    assert balanced(np.ones(10, np.int64), 4).sizes.tolist() in ([2, 3, 2, 3], [2, 3, 3, 2], [3, 2, 3, 2])


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_nnz_and_metis_balance_the_look_alikes(name: str) -> None:
    keys = ("dataset.scale=0.01", f"dataset.degree_scale={LOOK_ALIKES[name]}", "dataset.num_features=2")
    graph = load_dataset(compose(f"dataset={name}", *keys).dataset)
    adj = graph.adjacency(np.float32)
    for num_parts in (2, 4, 8):
        for partitioner in (partition.nnz, partition.metis):
            cut = partitioner(adj, graph.train_mask, num_parts, 0)
            assert cut.used == partitioner.__name__
            assert imbalance(part_loads(cut, row_weight(adj))) <= 1.05
        assert imbalance(part_loads(cut, graph.train_mask)) <= 1.05  # the last cut, that of metis


@pytest.mark.parametrize("num_parts", [2, 4, 8])
@pytest.mark.parametrize("train", ["none", "few", "communities", "all"])
def test_metis_finds_the_communities_and_balances_edges_and_training_nodes(train: str, num_parts: int, planted) -> None:
    adj = permuted(planted, partition.metis(planted, np.zeros(1000, bool), 20, 0).perm)  # one community after the other
    train_mask = {
        "none": np.zeros(1000, bool),
        "few": np.arange(1000) < 7,
        "communities": np.arange(1000) < 300,
        "all": np.ones(1000, bool),
    }[train]
    cut = partition.metis(adj, train_mask, num_parts, 0, tolerance=0.04)
    assert cut.used == "metis"
    assert imbalance(part_loads(cut, row_weight(adj))) <= 1.05
    most = int(part_loads(cut, train_mask).max())
    assert most <= max(np.ceil(train_mask.sum() / num_parts), train_mask.sum() / num_parts * 1.04)
    if train in ("none", "all"):
        random_cut = partition.random(adj, train_mask, num_parts, 0)
        cuts = [edge_cut(permuted(adj, c.perm), c.partition) for c in (cut, random_cut)]
        assert cuts[0] < 0.5 * cuts[1]


def test_metis_looks_at_edges_both_ways_and_balances_the_rows(planted) -> None:
    one_way = sparse.triu(planted).tocsr()
    cut = partition.metis(one_way, np.zeros(1000, bool), 4, 0)
    assert imbalance(part_loads(cut, row_weight(one_way))) <= 1.05
    assert edge_cut(permuted(one_way, cut.perm), cut.partition) < 0.3


@pytest.mark.parametrize("cause", ["not installed", "raises"])
def test_metis_falls_back_to_nnz_with_one_warning(cause: str, planted, monkeypatch, caplog) -> None:
    if cause == "not installed":
        monkeypatch.setitem(sys.modules, "pymetis", None)
    else:
        monkeypatch.setattr(pymetis, "part_graph", lambda *args, **kwargs: 1 / 0)
    with caplog.at_level(logging.INFO):
        cut = partition.metis(planted, every_third(planted), 4, 0)
    assert cut.used == "nnz"
    assert np.array_equal(cut.partition.bounds, partition.nnz(planted, every_third(planted), 4, 0).partition.bounds)
    [record] = caplog.records
    assert record.levelno == logging.WARNING and "partition=metis falls back to nnz" in record.message
    assert ("ModuleNotFoundError" if cause == "not installed" else "ZeroDivisionError") in record.message


@pytest.mark.parametrize("adj", [sparse.eye_array(9, format="csr"), sparse.csr_array(np.ones((4, 4)))])
def test_metis_is_not_asked_where_there_is_nothing_to_choose(adj, monkeypatch, caplog) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    assert partition.metis(adj, every_third(adj), 4, 0).used == "nnz"
    assert partition.metis(adj, every_third(adj), 1, 0).used == "metis"
    assert not caplog.records


@pytest.mark.parametrize("tolerance", [0, -1.0, float("nan"), float("inf")])
def test_metis_refuses_a_tolerance_out_of_range(tolerance: float, planted) -> None:
    with pytest.raises(ConfigError, match="partition.tolerance"):
        partition.metis(planted, every_third(planted), 4, 0, tolerance=tolerance)


def test_what_metis_prints_does_not_reach_stdout(capfd: pytest.CaptureFixture[str]) -> None:
    print("first", flush=True)
    kway(sparse.csr_array((10, 10), dtype=np.int64), 40, 0)  # it remarks on empty parts
    os.write(1, b"last\n")
    assert capfd.readouterr() == ("first\nlast\n", "")
