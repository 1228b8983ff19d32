"""What the planner says of runs with sparse features."""

import pytest

from fullgnn import train_graph
from fullgnn.plan import run
from tests.cases import dense_graph


def test_nothing_is_predicted_for_sparse_features(tmp_path) -> None:
    graph = dense_graph("words").graph()
    keys = "scheme=auto", "runtime.device=cpu", "train.epochs=1", "optimizations.cache_aggregation=false"
    for choice in (True, False):
        more = f"optimizations.sparse_features={choice}".lower(), f"run_dir={tmp_path / str(choice)}"
        assert (train_graph(graph, *keys, *more).predicted is None) == choice


@pytest.mark.sample(2)
@pytest.mark.parametrize("scaling", ["false", "true"])
def test_a_plan_says_that_it_takes_features_for_dense_ones(tmp_path, monkeypatch, scaling: str) -> None:
    monkeypatch.setattr("fullgnn.costs.search.SCALING_SIZES", (1,))
    numbers = ["num_nodes=1000", "num_edges=9000", "num_features=10", "num_classes=4", "nproc=1"]
    pages = {}
    for more in ("optimizations.sparse_features=auto", "optimizations.sparse_features=false", "model=lightgcn"):
        task = ["task=link_ranking", "num_users=400"] if more == "model=lightgcn" else []
        keys = [number for number in numbers if not (task and number.startswith("num_classes"))]
        run([*keys, *task, more, f"scaling={scaling}", "hardware=h200x8", f"out={tmp_path}"])
        pages[more] = (tmp_path / "plan.md").read_text()
    told = ["Features are planned as dense ones" in page for page in pages.values()]
    assert told == [True, False, False]
