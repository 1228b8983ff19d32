"""Encoded and cached features: what a batch reads is what the codec keeps, whatever is cached."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch

from fullgnn.codecs import BFloat16, Codec, Features, Unencoded, encoded
from fullgnn.distributed import world_of_one
from fullgnn.errors import DataError
from fullgnn.sampling.caches import Accesses, CacheNothing, CachePolicy
from fullgnn.sampling.features import Cached, Encoding, FeatureSource
from fullgnn.sampling.setup import set_up_sampled
from fullgnn.storage.cache import Cache
from fullgnn.telemetry.meter import Meter
from tests.cases import dense_graph, minibatch_config
from tests.sampling.features import NO_ACCESSES, Counted, Planned, fetch
from tests.sampling.loaders import batches_of, content, loader_of, make_workers, same_batches
from tests.sampling.training import MODELS, case, run, same

CPU = torch.device("cpu")
CACHED = {"nothing": [], "some": [0, 3, 7, 500, 899], "all": range(900)}


def stack(
    rows: np.ndarray, codec: Codec, cache: CachePolicy, dtype: torch.dtype, accesses: Accesses = NO_ACCESSES
) -> Cached:
    return Cached(rows, CPU, cache, accesses, Encoding(codec, dtype))


INPUTS = np.array([0, 2, 3, 10, 899]), np.arange(900, dtype=np.int32), np.array([4]), np.array([], np.int64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("codec", [Unencoded(), BFloat16()], ids=["plain", "bfloat16"])
def test_fetched_features_are_those_that_the_codec_keeps(codec: Codec, dtype: torch.dtype) -> None:
    features = torch.randn(900, 5, dtype=dtype, generator=torch.Generator().manual_seed(3))
    rows = codec.encode(features.numpy())
    assert rows.itemsize == (2 if isinstance(codec, BFloat16) else features.element_size())
    kept = features.bfloat16().to(dtype) if isinstance(codec, BFloat16) else features
    for plan in (
        *([nodes] for nodes in CACHED.values()),
        [range(3), range(2, 9), [], [899], range(899), range(1, 900)],
    ):
        source = stack(rows, codec, Planned(*plan), dtype)
        before: set[int] = set()
        for epoch, nodes in enumerate(plan, 1):
            assert source.begin(epoch) == len({*nodes} - before)  # a row that stays is not fetched again
            before = {*nodes}
            held = [tensor for tensor in source.tensors() if len(tensor)]
            assert sum(map(len, held)) == len(nodes)
            for inputs in INPUTS:
                missing = source.missing(inputs)
                assert missing.tolist() == [node for node in inputs.tolist() if node not in before]
                for fetched in (fetch(source, inputs), source.place(inputs, torch.from_numpy(rows[missing]))):
                    assert fetched.dtype == dtype and torch.equal(fetched, kept[inputs])
    assert source.row_bytes == 5 * rows.itemsize


@pytest.mark.parametrize("codec", [Unencoded(), BFloat16()], ids=["plain", "bfloat16"])
def test_ids_on_the_device_find_their_rows_if_all_are_there(codec: Codec) -> None:
    """And the table of the slots is that of the rows that are there now; the rank may read nodes 1 to 3 alone."""
    features = np.random.default_rng(0).integers(0, 9, (6, 3)).astype(np.float32)
    held = np.array([False, True, True, True, False, False])
    accesses = Accesses(None, lambda epoch: np.empty(0, np.int32), 1, held)  # type: ignore[arg-type]
    rows, plan = codec.encode(features), ([1, 2], [1, 2, 3], [2, 3, 5], range(6), range(1, 5))
    source = stack(rows, codec, Planned(*plan), torch.float32, accesses)
    assert not source.has_all and not FeatureSource(rows, CPU, Encoding(codec)).has_all
    for epoch, nodes in enumerate(plan, 1):
        source.begin(epoch)
        assert source.has_all == {*nodes}.issuperset([1, 2, 3])
        for ids in ([1, 3], [2], []) if source.has_all else ():
            placed = source.place(torch.tensor(ids, dtype=torch.int32), source.gather(np.empty(0, np.int64)))
            assert placed.tolist() == features[ids].tolist()


def test_a_cache_without_a_horizon_is_asked_once() -> None:
    class Asked(CacheNothing):
        epochs: list[int] = []

        def rows(self, accesses: Accesses, epoch: int) -> np.ndarray:
            self.epochs.append(epoch)
            return super().rows(accesses, epoch)

    rows = np.ones((4, 2), np.float32)
    for horizon, expected in ((None, [3]), (1, [3, 4, 5, 6, 7]), (3, [3, 4, 7])):
        cache = Asked()
        cache.horizon, cache.epochs = horizon, []  # type: ignore[attr-defined]
        source = stack(rows, Unencoded(), cache, torch.float32)
        for epoch in range(3, 8):
            source.begin(epoch)
        assert cache.epochs == expected


@pytest.mark.parametrize("rows", [[1, 0], [1, 1], [-1], [4], [0.5], [[0]]])
def test_a_choice_that_is_none_is_named(rows: list) -> None:
    class Mine(CacheNothing):
        def rows(self, accesses: Accesses, epoch: int) -> np.ndarray:
            return np.array(rows)

    source = stack(np.ones((4, 2), np.float32), Unencoded(), Mine(), torch.float32)
    with pytest.raises(
        DataError, match="the cache Mine must choose ids of nodes in ascending order, none twice, from 0"
    ):
        source.begin(1)


def test_words_that_are_there_or_not_stay_exact() -> None:
    features = np.random.default_rng(0).integers(0, 2, (50, 9)).astype(np.float32)
    assert torch.equal(
        BFloat16().decode(torch.from_numpy(BFloat16().encode(features)), torch.float32), torch.tensor(features)
    )


def test_what_a_codec_has_learnt_is_kept_and_checked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    features = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    files, kept = Cache(str(tmp_path)), []
    Counted.encodings = 0
    for change in (0, 0, 1, 0):
        kept.append(encoded(Counted(), files, {"name": "counted"}, Features(features + np.float32(change), "float32")))
    assert Counted.encodings == 2  # for two graphs
    for rows, state in (kept[1], kept[3]):
        np.testing.assert_array_equal(rows, kept[0][0])
        np.testing.assert_array_equal(state["step"], kept[0][1]["step"])
    encoded(Counted(), files, {"name": "counted", "bits": 7}, Features(features, "float32"))
    assert Counted.encodings == 3
    for file in (tmp_path / "encoded").iterdir():  # one bit of each is another one
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    rows, state = encoded(Counted(), files, {"name": "counted"}, Features(features, "float32"))
    assert Counted.encodings == 4 and "cannot be read" in caplog.text
    source = FeatureSource(rows, CPU, Encoding(Counted(), torch.float32, state))
    np.testing.assert_allclose(fetch(source, np.arange(30)), features, atol=np.abs(features).max() / 250)
    assert [tensor.tolist() for tensor in source.tensors()] == [state["step"].tolist()]


@pytest.mark.sample(2)
def test_a_codec_with_a_state_serves_every_rank_and_worker(ranks, tmp_path: Path, graph_files: dict[str, Path]) -> None:
    keys = [
        *MODELS["sage"],
        "codec._target_=tests.sampling.test_features.Counted",
        f"runtime.cache_dir={tmp_path}/kept",
    ]
    ways: dict[str, tuple[int, list[str]]] = {
        "one": (1, []),
        "kept": (1, ["loader.num_workers=2", "cache=degree", "cache.megabytes=1e-5"]),
        "three": (3, ["loader.num_workers=1"]),
    }
    results = [
        ranks(p)(run, case(graph_files["directed"], tmp_path / name, *keys, *more))[0]
        for name, (p, more) in ways.items()
    ]
    same(results[0], results[1], 0)
    same(results[0], results[2], 1e-9)
    assert len([*(tmp_path / "kept" / "encoded").iterdir()]) == 1


@pytest.mark.sample(2)
@pytest.mark.parametrize("codec", [Unencoded(), BFloat16()], ids=["plain", "bfloat16"])
@pytest.mark.parametrize("num_rows", [900, 40])
def test_workers_fetch_what_is_not_cached(graph, codec: Codec, num_rows: int) -> None:
    """Also where the cache keeps other rows in the next epoch."""
    batches = batches_of(graph)
    rows = codec.encode(batches.graph.features)

    def source(*plan: list[int] | range) -> Cached:
        return stack(rows, codec, Planned(*plan), torch.float32)

    with world_of_one(minibatch_config("runtime.device=cpu").runtime):
        plain = loader_of(batches, None, source([]))
        wanted = [[content(batch) for batch in plain.epoch(epoch)] for epoch in (1, 2, 3)]
        for plan in (*([nodes] for nodes in CACHED.values()), [CACHED["some"], range(100, 300), CACHED["all"]]):
            ahead = source(*plan)
            workers = make_workers(batches, num_rows=num_rows, features=ahead)
            with closing(loader_of(batches, workers, ahead)) as loader:
                for epoch_of in (loader, loader_of(batches, None, source(*plan))):
                    for epoch in (1, 2, 3):
                        assert same_batches([content(batch) for batch in epoch_of.epoch(epoch)], wanted[epoch - 1])


KEYS = {
    "some cached": ["cache=degree", "cache.megabytes=1e-4"],
    "all cached": ["cache=degree"],
    "bfloat16": ["codec=bfloat16"],
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", KEYS)
def test_any_number_of_ranks_gives_the_same_curve(
    ranks,
    tmp_path: Path,
    graph_files: dict[str, Path],
    name: str,
) -> None:
    keys = [*MODELS["sage"], *KEYS[name]]
    results = [ranks(size)(run, case(graph_files["directed"], tmp_path / f"p{size}", *keys))[0] for size in (1, 3)]
    same(*results, 1e-9)
    plain = ranks(1)(run, case(graph_files["directed"], tmp_path / "plain", *MODELS["sage"]))[0]
    sampling, before = (result["record"]["sampling"] for result in (results[0], plain))
    memory = [result["record"]["peak_tensor_bytes"] for result in (results[0], plain)]
    assert before["fetched_bytes"] > 0
    if name == "bfloat16":
        assert results[0]["loss"] != plain["loss"] and sampling["fetched_bytes"] == before["fetched_bytes"] / 4
        np.testing.assert_allclose(results[0]["loss"], plain["loss"], rtol=0.02)
    else:
        same(results[0], plain, 0)  # to the bit
        fetched = sampling["fetched_bytes"]
        assert fetched == 0 if name == "all cached" else 0 < fetched < before["fetched_bytes"]
        all_rows = 8 * dense_graph("directed").graph().features.size
        kept = memory[0] - memory[1]
        rounding = 4 * 512 if plain["record"]["device"] == "cuda" else 0  # torch allocates 512 bytes or more
        least = all_rows if name == "all cached" else 1
        most = all_rows if name == "all cached" else all_rows - 1
        assert least <= kept <= most + rounding
    assert sampling["codec"]["name"] in ("none", "bfloat16") and sampling["cache"]["name"] in ("none", "degree")


def test_slots_are_as_wide_as_encoded_rows() -> None:
    slot_bytes = {}
    for codec in ("none", "bfloat16"):
        cfg = minibatch_config(f"codec={codec}", "loader.num_workers=1", "runtime.device=cpu")
        with world_of_one(cfg.runtime) as world:
            with closing(set_up_sampled(cfg, world, Meter(CPU)).loader) as loader:
                (slot_bytes[codec],) = (size for _, size in loader.arrivals.workers.memory())
    assert slot_bytes["bfloat16"] < 0.8 * slot_bytes["none"]
