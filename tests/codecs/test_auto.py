"""The codec that loses least of what the first layer reads: losses by dense products, and which codec is chosen."""

import logging

import numpy as np
import pytest
import torch

from fullgnn.codecs import CodecLoss, Features, FirstLayer, encoded, first_layer
from fullgnn.codecs.auto import Auto, candidates
from fullgnn.codecs.kinds import KINDS
from fullgnn.errors import ConfigError
from fullgnn.graph import Graph, Propagation
from fullgnn.storage.cache import Cache
from tests.oracle import normalize

pytestmark = pytest.mark.sample(2)  # its tests take seconds, or compile kernels

NOWHERE = Cache(None)
LAYERS = {
    "gcn": FirstLayer(Propagation("sym", True), (1,)),
    "sage": FirstLayer(Propagation("row", False), (0, 1)),
    "sums": FirstLayer(Propagation("none", True), (1,)),
    "mlp": FirstLayer(None),
}


def graph(features: np.ndarray, weighted: bool = False) -> Graph:
    random, num_nodes = np.random.default_rng(3), len(features)
    edges = random.integers(0, num_nodes, (2, 6 * num_nodes))
    edges = np.concatenate([edges, np.stack([np.arange(9), np.arange(9)])], 1)  # some loops
    weight = random.random(edges.shape[1]) + 0.5 if weighted else None
    return Graph.from_edge_index(edges, num_nodes=num_nodes, features=features, edge_weight=weight)


def normal(num_nodes: int = 80, num_columns: int = 64) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(num_nodes, num_columns)).astype(np.float32)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_the_loss_is_that_of_dense_products(name: str, weighted: bool) -> None:
    x, layer = normal(), LAYERS[name]
    whole = graph(x, weighted)
    error = np.random.default_rng(1).normal(size=x.shape) * 0.1
    loss = CodecLoss.of(layer, whole, 0)  # of all nodes, since they are few
    assert loss.nodes.tolist() == list(range(80))
    a, kind = np.eye(80), layer.propagation
    if kind is not None:
        a = normalize(whole.adjacency(np.float64).toarray(), kind.normalization, kind.self_loops)
    factors = [np.eye(80) if k == 0 else a for k in layer.powers]
    lost, all_of_it = (sum(np.square(power @ y).sum() for power in factors) for y in (error, x.astype(np.float64)))
    decoded = x.astype(np.float64) + error
    assert loss(x, decoded) == pytest.approx(np.sqrt(lost / all_of_it), rel=1e-9)
    assert loss(x, x) == 0 and loss(np.zeros_like(x), x) == 1 and loss(np.zeros_like(x), np.zeros_like(x)) == 0


@pytest.mark.sample(6)
@pytest.mark.parametrize("num_columns", [1, 2, 3, 64, 257, 602])
@pytest.mark.parametrize("ratio", [1, 2, 8, 16, 64, 128])
def test_no_candidate_is_larger_than_asked(num_columns: int, ratio: float) -> None:
    x = normal(300, num_columns)
    for name, keys in candidates(num_columns, 4 * num_columns / ratio):
        rows, _ = encoded(KINDS[name](**keys), NOWHERE, {}, Features(x, "float32"))
        assert rows.shape[1] * rows.itemsize <= 4 * num_columns / ratio, (name, keys)


@pytest.mark.parametrize("name", LAYERS)
def test_the_codec_that_loses_least_is_chosen(name: str, caplog: pytest.LogCaptureFixture) -> None:
    whole = graph(normal())
    features, layer = Features(whole.features, "float32", whole), LAYERS[name]
    loss, losses = CodecLoss.of(layer, whole, 0), {}
    for kind, keys in candidates(64, 4 * 64 / 8):
        codec = KINDS[kind](**keys)
        rows, _ = encoded(codec, NOWHERE, {}, features)
        losses[kind, *keys.items()] = loss(whole.features, codec.decode(torch.from_numpy(rows), torch.float32).numpy())
    best = min(losses, key=lambda choice: losses[choice])
    codec = Auto(8.0, None, layer)
    with caplog.at_level(logging.INFO):
        rows, state = encoded(codec, NOWHERE, {}, features)
    assert f"codec=auto: {best[0]} {dict(best[1:])}" in caplog.text
    expected, _ = encoded(KINDS[best[0]](**dict(best[1:])), NOWHERE, {}, features)
    np.testing.assert_array_equal(rows, expected)
    other = Auto(8.0, None, layer)
    other.load_state({name: torch.from_numpy(array) for name, array in state.items()})
    decoded = other.decode(torch.from_numpy(rows), torch.float32)
    assert loss(whole.features, decoded.numpy()) == pytest.approx(losses[best])
    index = torch.tensor([3, 3, 0])
    assert torch.equal(other.decode_rows(torch.from_numpy(rows), index, torch.float32), decoded[index])


def test_the_loss_is_that_of_what_is_learnt_in_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not that of centroids which were learnt from the measured nodes alone, and which fit them too well."""
    monkeypatch.setattr(first_layer, "MOST_NODES", 300)
    whole = graph(normal(3000, 8))
    codec, layer = Auto(8.0, None, LAYERS["mlp"]), LAYERS["mlp"]
    with caplog.at_level(logging.INFO):
        rows, _ = encoded(codec, NOWHERE, {}, Features(whole.features, "float32", whole))
    loss = CodecLoss.of(layer, whole, 0)
    lost = loss(whole.features[loss.nodes], codec.decode(torch.from_numpy(rows[loss.nodes]), torch.float32).numpy())
    assert len(loss.nodes) == 300 and f"product 4 bytes {lost:.3g}" in caplog.text
    flattered = KINDS["product"](columns=2)
    few, _ = encoded(flattered, NOWHERE, {}, Features(whole.features[loss.nodes], "float32"))
    decoded = flattered.decode(torch.from_numpy(few), torch.float32).numpy()
    assert loss(whole.features[loss.nodes], decoded) < lost / 2


def test_the_smallest_codec_within_a_loss_is_chosen() -> None:
    bits = (np.random.default_rng(0).random((2000, 64)) < 0.3).astype(np.float32)
    codec = Auto(None, 0.0, LAYERS["gcn"])
    rows, _ = encoded(codec, NOWHERE, {}, Features(bits, "float32", graph(bits)))
    assert rows.shape[1] * rows.itemsize == 8  # a bit for each column
    assert torch.equal(codec.decode(torch.from_numpy(rows), torch.float32), torch.from_numpy(bits))


def test_features_that_no_codec_keeps_are_kept_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    whole = graph(normal(900))
    codec = Auto(None, 1e-9, LAYERS["mlp"])
    with caplog.at_level(logging.INFO):
        rows, _ = encoded(codec, NOWHERE, {}, Features(whole.features, "float32", whole))
    assert "no codec loses at most 1e-09: the features are kept as they are" in caplog.text
    np.testing.assert_array_equal(rows, whole.features)


def test_a_ratio_that_no_codec_reaches_is_refused() -> None:
    few = normal(100, 3)
    with pytest.raises(
        ConfigError, match=r"codec\.ratio=16\.0: no codec keeps 3 features in 0\.75 bytes: give a smaller"
    ):
        encoded(Auto(16.0, None), NOWHERE, {}, Features(few, "float32", graph(few)))
    for keys in ((16.0, None), (None, 0.1)):  # of no features nothing can be lost
        rows, _ = encoded(Auto(*keys), NOWHERE, {}, Features(few[:, :0], "float32", graph(few[:, :0])))
        assert rows.shape == (100, 0)


@pytest.mark.parametrize("keys", [(None, None), (4.0, 0.1), (0.5, None), (None, -1.0), (float("nan"), None)])
def test_wrong_keys_are_refused(keys: tuple[float | None, float | None]) -> None:
    with pytest.raises(ConfigError, match="^codec[^\n]*: give [^\n]*$"):
        Auto(*keys)
