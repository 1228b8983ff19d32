"""Sparse features: positions as an independent sort finds them, and a codebook of means."""

import logging
from collections.abc import Iterator
from contextlib import nullcontext
from unittest import mock

import numpy as np
import pytest
import torch

from fullgnn.codecs import Features, encoded
from fullgnn.codecs import features as features_file
from fullgnn.codecs.topk import GROUP, TopK
from fullgnn.errors import ConfigError, DataError
from fullgnn.kernels.support import gpu
from fullgnn.sampling.features import Cached, Encoding
from fullgnn.storage.cache import Cache
from tests.sampling.features import NO_ACCESSES, Planned, fetch
from tests.triton_device import DEVICE, needs_triton

NOWHERE = Cache(None)
WIDTHS = [0, 1, 2, 3, 15, 17, 255, 256, 257, 602]


def positions_of(row: np.ndarray, k: int) -> list[int]:
    """The codes of a row, by sorting it in float64."""
    codes: list[int] = []
    for first in range(0, len(row), GROUP):
        group = row[first : first + GROUP].astype(np.float64) + 0.0  # -0 becomes 0
        count = min(k, len(group) // 2)
        top = np.argsort(-group, kind="stable")[:count].tolist()
        others = [place for place in np.argsort(group, kind="stable").tolist() if place not in top]
        codes += top + others[:count]
    return codes


def rows_of_every_kind(num_columns: int, dtype: str) -> np.ndarray:
    """Normal rows, ties, zeros of both signs, constant rows, rising and falling ones, and bags of words."""
    random = np.random.default_rng(num_columns)
    ties = random.integers(-2, 3, (6, num_columns))
    words = random.random((6, num_columns)) < 0.02
    rising = np.arange(num_columns)
    signed = np.where(random.random((3, num_columns)) < 0.5, -0.0, 0.0)
    constant = np.array([[0.0], [-3.5], [1e30]]) * np.ones(num_columns)
    normal = random.normal(size=(20, num_columns))
    return np.concatenate([normal, ties, words, [rising, -rising], signed, constant]).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("num_columns", WIDTHS)
@pytest.mark.parametrize("k", [1, 8, 128])
def test_codes_and_decoded_rows(k: int, num_columns: int, dtype: str) -> None:
    x = rows_of_every_kind(num_columns, dtype)
    codec = TopK(k)
    codes, state = encoded(codec, NOWHERE, {}, Features(x, dtype))
    expected = np.array([positions_of(row, k) for row in x]).reshape(len(x), -1)
    assert codes.dtype == np.uint8
    np.testing.assert_array_equal(codes, expected)

    widths = [min(GROUP, num_columns - first) for first in range(0, num_columns, GROUP)]
    counts = [min(k, width // 2) for width in widths]
    first = np.repeat(GROUP * np.arange(len(widths)), [2 * count for count in counts]).astype(np.int64)
    values = np.take_along_axis(x.astype(np.float64), expected.astype(np.int64) + first, 1)
    np.testing.assert_allclose(state["codebook"], values.mean(0), rtol=1e-6)
    dense = np.zeros(x.shape, dtype)
    np.put_along_axis(dense, expected.astype(np.int64) + first, state["codebook"].astype(dtype), 1)
    other = TopK(k)
    other.load_state({name: torch.from_numpy(array) for name, array in state.items()})
    decoded = other.decode(torch.from_numpy(codes), getattr(torch, dtype))
    np.testing.assert_array_equal(decoded.numpy(), dense)
    index = torch.tensor([3, 0, 3, len(x) - 1])
    picked = other.decode_rows(torch.from_numpy(codes), index, getattr(torch, dtype))
    np.testing.assert_array_equal(picked.numpy(), dense[index])


def test_of_a_constant_row_the_first_positions_are_kept() -> None:
    assert TopK(3).encode(np.full((1, 20), 7.0)).tolist() == [[0, 1, 2, 3, 4, 5]]


def test_compression_of_the_paper() -> None:
    """Bytes of float32 over bytes of codes: Reddit, papers100M and MAG240M."""
    for num_columns, k, ratio in ((602, 8, 50.2), (128, 16, 16.0), (768, 8, 64.0)):
        codes = TopK(k).encode(np.zeros((1, num_columns), np.float32))
        assert round(4 * num_columns / codes.shape[1], 1) == ratio


@pytest.fixture
def small_blocks() -> Iterator[None]:
    with mock.patch.object(features_file, "BLOCK_BYTES", 1000):
        yield


def test_neither_threads_nor_blocks_change_a_bit(small_blocks: None) -> None:
    x = np.random.default_rng(0).normal(size=(333, 301)).astype(np.float32)
    results = []
    for threads, block_bytes in ((1, 1 << 30), (2, 1000), (5, 77_777)):
        torch.set_num_threads(threads)
        with mock.patch.object(features_file, "BLOCK_BYTES", block_bytes):
            results.append(encoded(TopK(8, sample_nodes=50, seed=3), NOWHERE, {}, Features(x, "float32")))
    for codes, state in results[1:]:
        np.testing.assert_array_equal(codes, results[0][0])
        np.testing.assert_array_equal(state["codebook"], results[0][1]["codebook"])


def test_the_codebook_is_of_a_seeded_sample() -> None:
    x = np.random.default_rng(0).normal(size=(400, 30)).astype(np.float32)
    books = [
        encoded(TopK(4, sample_nodes=count, seed=seed), NOWHERE, {}, Features(x, "float32"))[1]["codebook"]
        for count, seed in ((50, 0), (50, 0), (50, 1), (400, 0), (1000, 7))
    ]
    assert (books[0] == books[1]).all() and (books[0] != books[2]).any()
    assert (books[3] == books[4]).all()  # all nodes, whatever the seed


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_refused(wrong: float, small_blocks: None) -> None:
    x = np.zeros((500, 12), np.float32)
    x[499, 11] = wrong
    with pytest.raises(DataError, match="^features hold NaN or infinity[^\n]*$"):
        encoded(TopK(2, sample_nodes=1), NOWHERE, {}, Features(x, "float32"))


@pytest.mark.parametrize("keys", [{"k": 0}, {"k": 129}, {"k": 4, "sample_nodes": 0}])
def test_numbers_out_of_range_are_refused(keys: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="^codec.* is out of range: give [^\n]*$"):
        TopK(**keys)


@needs_triton
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("num_columns", [0, 3, 257, 602])
def test_a_gpu_decodes_the_same_bits(triton_on_cpu: None, num_columns: int, dtype: torch.dtype) -> None:
    x = rows_of_every_kind(num_columns, "float32")
    codec, index = TopK(8), torch.tensor([0, 5, 5, len(x) - 1, 2])
    codes, state = encoded(codec, NOWHERE, {}, Features(x, "float32"))
    decoded = {}
    for interpreted in (False, True):
        device = DEVICE if interpreted else torch.device("cpu")
        codec.load_state({name: torch.from_numpy(array).to(device) for name, array in state.items()})
        with mock.patch.object(gpu, "INTERPRETED", interpreted and not torch.cuda.is_available()):
            decoded[interpreted] = codec.decode_rows(torch.from_numpy(codes).to(device), index.to(device), dtype).cpu()
    assert torch.equal(decoded[False], decoded[True])


@pytest.mark.parametrize("kept", [[], [1, 2, 5], range(40)], ids=["nothing", "some", "all"])
def test_a_cache_is_decoded_where_it_lies(kept: list[int] | range) -> None:
    x = np.random.default_rng(0).normal(size=(40, 270)).astype(np.float32)
    codec = TopK(4)
    codes, state = encoded(codec, NOWHERE, {}, Features(x, "float32"))
    plain = codec.decode(torch.from_numpy(codes), torch.float32)
    source = Cached(codes, torch.device("cpu"), Planned(kept), NO_ACCESSES, Encoding(codec, torch.float32, state))
    source.begin(1)
    for ids in (np.array([5, 2, 5, 1]), np.array([0, 1]), np.empty(0, np.int64)):
        whole = len(ids) > 0 and set(ids.tolist()) <= {*kept}
        with mock.patch.object(codec, "decode", side_effect=AssertionError) if whole else nullcontext():
            assert torch.equal(fetch(source, ids), plain[ids])


@pytest.mark.parametrize(("share", "says"), [(0.004, True), (0.5, False)])
def test_features_that_are_nearly_all_zeros_are_named(
    share: float, says: bool, caplog: pytest.LogCaptureFixture
) -> None:
    x = (np.random.default_rng(0).random((200, 500)) < share).astype(np.float32)
    with caplog.at_level(logging.INFO):
        encoded(TopK(8), NOWHERE, {}, Features(x, "float32"))
    assert ("sparse rows would take" in caplog.text) == says
