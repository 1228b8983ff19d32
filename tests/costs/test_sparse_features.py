"""What the planner says of runs with sparse features."""

from fullgnn import train_graph
from tests.cases import dense_graph


def test_nothing_is_predicted_for_sparse_features(tmp_path) -> None:
    graph = dense_graph("words").graph()
    keys = "scheme=auto", "runtime.device=cpu", "train.epochs=1", "optimizations.cache_aggregation=false"
    for choice in (True, False):
        more = f"optimizations.sparse_features={choice}".lower(), f"run_dir={tmp_path / str(choice)}"
        assert (train_graph(graph, *keys, *more).predicted is None) == choice
