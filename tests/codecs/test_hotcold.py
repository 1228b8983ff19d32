"""Two codecs: hot nodes have what the finer one keeps, the others what the coarser one keeps."""

from unittest import mock

import numpy as np
import pytest
import torch

from fullgnn.codecs import Features, encoded, num_bytes
from fullgnn.codecs.hotcold import HotCold
from fullgnn.codecs.kinds import make
from fullgnn.errors import ConfigError
from fullgnn.graph import Graph
from fullgnn.storage.cache import Cache

NOWHERE = Cache(None)
TOPK, FINER, SHORT = "topk k=2", "bfloat16", "pca dimensions=3"


def graph(num_columns: int = 40, num_nodes: int = 50) -> Graph:
    random = np.random.default_rng(num_columns)
    features = random.normal(size=(num_nodes, num_columns)).astype(np.float32)
    edges = np.stack([random.integers(0, num_nodes, 300) ** 2 // num_nodes, random.integers(0, num_nodes, 300)])
    return Graph.from_edge_index(edges, num_nodes=num_nodes, features=features)


def alone(keys: str, whole: Graph) -> np.ndarray:
    """What a codec alone keeps."""
    codec = make("codec.hot", keys)
    rows, _ = encoded(codec, NOWHERE, {}, Features(whole.features, "float32", whole))
    return codec.decode(torch.from_numpy(rows), torch.float32).numpy()


@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("keys", [(FINER, TOPK), (SHORT, TOPK), (TOPK, FINER), (TOPK, "topk k=1")])
def test_each_node_has_what_its_codec_keeps(keys: tuple[str, str], share: float) -> None:
    whole = graph()
    codec = HotCold(*keys, hot_share=share)
    rows, state = encoded(codec, NOWHERE, {}, Features(whole.features, "float32", whole))
    reads = np.zeros(50, int)
    for node in whole.indices:
        reads[node] += 1
    hot = sorted(range(50), key=lambda node: (-reads[node], node))[: round(50 * share)]
    expected = alone(keys[1], whole)
    expected[hot] = alone(keys[0], whole)[hot]
    other = HotCold(*keys, hot_share=share)
    other.load_state({name: torch.from_numpy(array) for name, array in state.items()})
    # PCA multiplies all hot rows at once, and BLAS may add the terms of a row in another order than for all rows.
    np.testing.assert_allclose(other.decode(torch.from_numpy(rows), torch.float32), expected, rtol=1e-5, atol=1e-6)
    cold_bytes = encoded(make("codec.cold", keys[1]), NOWHERE, {}, Features(whole.features, "float32"))[0][:1].nbytes
    assert rows.dtype == np.uint8 and rows.shape[1] == 1 + max(4, cold_bytes)
    assert len(state["_hot_rows"]) == len(hot)
    assert num_bytes(rows, state) == rows.nbytes + len(hot) * state["_hot_rows"][:1].nbytes


def test_on_another_graph_it_chooses_other_nodes_and_learns_nothing() -> None:
    first, second = graph(), graph()
    second = Graph.from_edge_index(
        np.stack([np.full(49, 7), np.arange(49)]), num_nodes=50, features=second.features[::-1].copy()
    )
    codec = HotCold(FINER, TOPK, hot_share=0.02)
    _, state = encoded(codec, NOWHERE, {}, Features(first.features, "float32", first))
    kept = {name: array for name, array in state.items() if not name.startswith("_")}  # as a checkpoint has it
    other = HotCold(FINER, TOPK, hot_share=0.02)
    rows, now = encoded(other, NOWHERE, {}, Features(second.features, "float32", second), kept)
    assert rows[:, 0].nonzero()[0].tolist() == [7]
    np.testing.assert_array_equal(now["cold.codebook"], state["cold.codebook"])
    decoded = other.decode(torch.from_numpy(rows), torch.float32)
    assert torch.equal(decoded[7], torch.from_numpy(second.features[7]).bfloat16().float())


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"hot": "none", "cold": TOPK, "hot_share": 2}, "codec.hot_share=2 is out of range: give 0 to 1"),
        ({"hot": "mine k=1", "cold": TOPK, "hot_share": 0}, "codec.hot=mine k=1: mine is no codec: choose one of"),
        ({"hot": "", "cold": TOPK, "hot_share": 0}, "codec.hot=: nothing is no codec: choose one of"),
        ({"hot": FINER, "cold": "topk l=1", "hot_share": 0}, "codec.cold=topk l=1: missing a required argument: 'k'"),
        ({"hot": FINER, "cold": "topk k=1 l=1", "hot_share": 0}, "codec.cold=topk k=1 l=1: got an unexpected keyword"),
        ({"hot": "topk k=0", "cold": TOPK, "hot_share": 0}, "codec.k=0 is out of range: give 1 to 128"),
    ],
)
def test_wrong_keys_are_refused(keys: dict[str, object], line: str) -> None:
    with pytest.raises(ConfigError, match=f"^{line}[^\n]*$"):
        HotCold(**keys)  # type: ignore[arg-type]


def test_a_pointer_is_never_decoded() -> None:
    """Its bytes, as positions in a narrow group, would lie outside of the row."""
    whole = graph(num_columns=6, num_nodes=3000)
    seen: list[torch.Tensor] = []
    codec = HotCold(FINER, "topk k=3", hot_share=0.9)
    rows, _ = encoded(codec, NOWHERE, {}, Features(whole.features, "float32", whole))
    cold = codec._codecs["cold"]
    with mock.patch.object(
        cold, "decode", side_effect=lambda codes, dtype: (seen.append(codes), torch.zeros(3000, 6))[1]
    ):
        codec.decode(torch.from_numpy(rows), torch.float32)
    assert rows[:, 1:5].max() > 5 and int(seen[0].max()) <= 5
