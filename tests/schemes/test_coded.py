"""A @ H0 of features that travel as codes has the bits of A @ H0 of the decoded features, and fewer bytes travel.

With ``pca`` the last bits depend on how many rows a dense product decodes at once.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from fullgnn.codecs import Features, build_codec, encoded
from fullgnn.config import Config
from fullgnn.distributed import World
from fullgnn.engine import set_up
from fullgnn.graph import Graph
from fullgnn.schemes.inputs import PropagatedInput
from fullgnn.storage.cache import Cache
from fullgnn.telemetry.meter import Meter
from tests.cases import LAYOUTS, config, layout_overrides

NUM_NODES, COLUMNS = 40, 300  # columns are multiplied 128 at a time
CODECS = {
    "topk": ["codec=topk", "codec.k=4"],
    "scalar": ["codec=scalar", "codec.bits=2", "codec.scale=row"],
    "bfloat16": ["codec=bfloat16"],  # learns nothing, and its codes are numbers of 16 bits
    "pca": ["codec=pca", "codec.dimensions=9"],
    "pca of 8 bits": ["codec=pca", "codec.dimensions=20", "codec.bits=8"],
    "hotcold": ["codec=hotcold", 'codec.hot="topk k=30"', 'codec.cold="topk k=2"', "codec.hot_share=0.2"],
}
MODELS = {"gcn": (1, True), "sage": (1, False), "sgc": (2, True)}
"""Products of A with H0 or with the product before, and whether the columns of A have a scale."""

WAYS = {
    "sent": [],
    "broadcast": ["scheme.stage_order=broadcast", "scheme.exchange=broadcast"],
    "copies": ["scheme.split_rows=false", "scheme.exchange=needed_rows"],
    "packed": ["scheme.fetch=packed", "scheme.piece_rows=9"],
    "in place": ["scheme.shared_memory=true"],
}


def graph() -> Graph:
    random = np.random.default_rng(0)
    edges = random.integers(0, NUM_NODES, (2, 150)) ** 2 // NUM_NODES
    return Graph.from_edge_index(
        edges,
        num_nodes=NUM_NODES,
        features=random.normal(size=(NUM_NODES, COLUMNS)).astype(np.float32),
        labels=random.integers(0, 3, NUM_NODES),
        train_mask=np.ones(NUM_NODES, bool),
    )


def kept(whole: Graph, cfg: Config) -> tuple[Graph, int]:
    """The graph whose features are what the codec of ``cfg`` keeps of them, and the bytes of a code."""
    codec = build_codec(cfg.codec)
    assert codec is not None
    rows, _ = encoded(codec, Cache(None), {}, Features(whole.features, cfg.runtime.dtype, whole))
    dtype = getattr(torch, cfg.runtime.dtype)
    return replace(whole, features=codec.decode(torch.from_numpy(rows), dtype).numpy()), rows[:1].nbytes


def products(world: World, cases: Sequence[tuple[Config, Graph]]) -> list[tuple[np.ndarray, int]]:
    """For each case the products with H0 that are kept, and the bytes that this rank has received for them."""
    results = []
    for cfg, whole in cases:
        meter = Meter(world.device)
        job = set_up(cfg, world, meter, whole if world.rank == 0 else None)
        read = job.graph.features
        assert isinstance(read, PropagatedInput) and job.graph.coded is None
        rows = np.stack([product.cpu().numpy() for product in read.products.values()])  # type: ignore[union-attr]
        received = meter.take().bytes_received
        results.append((rows, sum(received.get(name, 0) for name in ("exchange", "broadcast", "gather"))))
    return results


@pytest.mark.sample(24)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("world_size", "replication"), LAYOUTS)
def test_codes_travel(ranks, world_size: int, replication: int, way: str) -> None:
    whole, itemsize = graph(), 8 if way == "sent" else 4
    layout = [
        "model.input_dropout=0",
        "scheme.shared_memory=false",
        *WAYS[way],
        *layout_overrides(replication),
        f"runtime.dtype=float{8 * itemsize}",
        "partition=random",
    ]
    cases, row_bytes, names = [], [], list[str]()
    turn = LAYOUTS.index((world_size, replication)) + list(WAYS).index(way)
    # Half of the codecs, each with one model here, and with all of them on every way.
    for number, codec in [*enumerate(CODECS.values())][turn % 2 :: 2]:
        name, (num_products, is_scaled) = list(MODELS.items())[(number + turn) % len(MODELS)]
        names.append(codec[0].removeprefix("codec="))
        keys = [f"model={name}", *layout[name == "sgc" :]]  # which has no dropout
        plain, coded = config(*keys), config(*keys, *codec)
        decoded, code_bytes = kept(whole, coded)
        cases += [(plain, decoded), (coded, whole)]
        first = code_bytes + itemsize * is_scaled  # later products send what they have multiplied
        row_bytes.append((num_products * COLUMNS * itemsize, first + (num_products - 1) * COLUMNS * itemsize))
    all_rows = 0
    for of_rank in ranks(world_size)(products, cases):
        for (expected, plain_bytes), (rows, coded_bytes), (of_plain, of_coded), codec in zip(
            of_rank[::2], of_rank[1::2], row_bytes, names, strict=True
        ):
            if codec.startswith("pca"):  # whose dense product rounds otherwise where it decodes one to three rows
                np.testing.assert_allclose(rows, expected, rtol=1e-5, atol=1e-6)
            else:
                np.testing.assert_array_equal(rows, expected)
            num_rows, rest = divmod(plain_bytes, of_plain)
            assert rest == 0 and coded_bytes == num_rows * (of_plain if way == "in place" else of_coded)
            all_rows += num_rows
    assert (all_rows > 0) == (world_size > (replication if way == "copies" else 1))


def test_codes_are_not_rounded_on_the_way(ranks) -> None:
    """``scheme.wire_dtype`` rounds rows, not codes."""
    keys = ["model=gcn", "model.input_dropout=0", "codec=topk", "codec.k=4", "scheme=1d", "scheme.shared_memory=false"]
    cases = [(config(*keys, *wire), graph()) for wire in ([], ["scheme.wire_dtype=bfloat16"])]
    for (expected, _), (rows, _) in ranks(2)(products, cases):
        np.testing.assert_array_equal(rows, expected)
