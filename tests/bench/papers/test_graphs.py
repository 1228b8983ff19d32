"""The graphs of the targets have the density asked for, are loaded once, and are real where the file exists."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fullgnn.bench.papers import graphs
from fullgnn.bench.papers.config import Keys, load_target
from fullgnn.bench.papers.graphs import case, cases, full_size
from fullgnn.errors import ConfigError
from fullgnn.graph import Graph

ARRAYS = ["indptr", "indices", "features", "labels", "train_mask", "val_mask", "test_mask"]
DATASETS = ["reddit-like", "proteins-like", "archaea-like", "products-like"]


@pytest.fixture
def cfg(tmp_path: Path) -> Keys:
    return load_target("table3", "scale=0.02", f"data_root={tmp_path}")


@pytest.mark.parametrize("dataset", DATASETS)
def test_a_shrunk_graph_keeps_its_density_within_twice_the_real(cfg: Keys, dataset: str) -> None:
    made = case(cfg, dataset, features=False)
    n, full = made.graph.num_nodes, full_size(dataset)
    assert n == round(0.02 * full.num_nodes)
    pattern = made.graph.adjacency(np.int8)
    assert pattern.diagonal().sum() == 0  # no self-loop is stored, so A + I has n more non-zeros
    density = (pattern.nnz + n) / n**2
    assert made.size.density == density
    assert density / (full.nnz / full.num_nodes**2) == pytest.approx(1.9, rel=0.02)
    assert made.facts(torch.device("cpu"))["density_ratio"] == pytest.approx(1.9, rel=0.02)


def test_full_size_has_the_full_degree() -> None:
    assert all(graphs.degree_scale_for(1.9, 1.0, full_size(dataset)) == 1.0 for dataset in DATASETS)


def test_a_graph_too_small_for_its_density_is_refused() -> None:
    with pytest.raises(ConfigError, match="^scale=0.001 leaves no edges at 1.9 times the real density: raise scale$"):
        graphs.degree_scale_for(1.9, 0.001, full_size("products-like"))


def test_the_modelled_cache_is_the_share_of_the_papers(cfg: Keys) -> None:
    made = case(cfg, "reddit-like", features=False)
    assert made.modelled_cache_rows == round(6 * 2**20 / (232965 * 128 * 4) * made.graph.num_nodes)


def test_targets_share_a_graph(cfg: Keys) -> None:
    assert case(cfg, "reddit-like").graph is case(cfg, "reddit-like").graph


def test_cases_follow_the_choice(tmp_path: Path) -> None:
    cfg = load_target("table3", "scale=0.02", "datasets=[archaea-like,reddit-like]", f"data_root={tmp_path}")
    assert [made.dataset for made in cases(cfg, features=False)] == ["reddit-like", "archaea-like"]


def test_a_real_graph_is_taken_where_it_is(cfg: Keys, tmp_path: Path) -> None:
    made = case(cfg, "reddit-like")
    assert not made.real
    small = case(load_target("table3", "scale=0.003", f"data_root={tmp_path}"), "reddit-like").graph
    small.save(tmp_path / "reddit.npz")
    real = case(cfg, "reddit-like")
    assert real.real and real.scale == real.degree_scale == 1.0
    assert np.array_equal(real.graph.indices, small.indices)
    assert real.facts(torch.device("cpu"))["source"] == "real"


def test_a_kept_graph_is_the_same(tmp_path: Path) -> None:
    cfg = load_target("table3", "scale=0.01", f"cache_dir={tmp_path}", f"data_root={tmp_path}")

    def made_anew() -> Graph:
        graphs.load.cache_clear()
        return case(cfg, "reddit-like").graph

    made, kept = made_anew(), made_anew()
    assert len(list(tmp_path.glob("*/*.npz"))) == 1
    assert all(np.array_equal(getattr(made, name), getattr(kept, name)) for name in ARRAYS)
    assert (made.num_classes, made.name) == (kept.num_classes, kept.name)
