"""Sizes that no machine has are refused before anything of that size is made."""

import pytest
import torch

from fullgnn.engine import check_preparation
from fullgnn.engine.checks import check_model_fits
from fullgnn.errors import ConfigError, DataError
from fullgnn.graph import load_dataset
from tests.cases import config

WRONG = {
    "model.hidden_channels=2000000": "model.hidden_channels=2000000 is too large: it must be at most 1048576",
    "model.hidden_channels=500000 model.num_layers=4": "the parameters take 2000002000000 bytes or more",
    "model.num_layers=20000": "model.num_layers=20000 is too large: it must be at most 10000",
    "model.num_layers=1000000000": "the parameters take ",
    "model.embedding_channels=3000000000": "the parameters take 192000000064 bytes or more, and cpu has",
    "model=gat model.heads=99999": "model.heads=99999 is too large: it must be at most 10000",
    "model=sgc model.num_hops=100000": "model.num_hops=100000 is too large: it must be at most 10000",
    "model=lightgcn task=link_ranking model.num_layers=100000": "model.num_layers=100000 is too large",
    "task=link_prediction task.channels=10000000000": "the parameters take 640000000064 bytes",
}


@pytest.mark.parametrize("overrides", WRONG)
def test_a_model_beyond_reason_is_refused(overrides: str, monkeypatch) -> None:
    monkeypatch.setattr("fullgnn.engine.checks.memory_bytes", lambda device: 64 << 30)
    with pytest.raises(ConfigError) as caught:
        check_preparation(config("runtime.dtype=float32", *overrides.split()))
    assert WRONG[overrides] in str(caught.value) and "\n" not in str(caught.value)


def test_vectors_of_nodes_count_when_their_number_is_known(monkeypatch) -> None:
    monkeypatch.setattr("fullgnn.engine.checks.memory_bytes", lambda device: 1 << 30)
    cfg, device = config("model.embedding_channels=64", "runtime.dtype=float64"), torch.device("cpu")
    check_model_fits(cfg, 10, 2_000_000, device)
    with pytest.raises(ConfigError, match="model.embedding_channels=64: the parameters take 1536009472 bytes or more"):
        check_model_fits(cfg, 10, 3_000_000, device)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("dataset=rmat dataset.num_nodes=3000000000", "rmat has 3000000000 nodes, and a Graph can have fewer than 2"),
        (
            "dataset=rmat dataset.num_features=100000000",
            r"10000 nodes, .* and 100000000 features needs \d+ bytes of memory",
        ),
        (
            "dataset=synthetic dataset.num_features=100000000",
            r"and 100000000 features needs \d+ bytes of memory, and \d+",
        ),
    ],
)
def test_a_generated_graph_beyond_reason_is_refused(overrides: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_dataset(config(*overrides.split()).dataset)
