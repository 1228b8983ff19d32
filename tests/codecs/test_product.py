"""Product quantization: codes and decoded rows against dense distances in float64, and what k-means learns."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fullgnn.codecs import Features, encoded
from fullgnn.codecs._product_cpu import refine
from fullgnn.codecs.encoded import EncodedRows
from fullgnn.codecs.product import Product, looked_up
from fullgnn.errors import ConfigError, DataError
from fullgnn.storage.cache import Cache

EPSILON = 2.0**-24  # largest relative error of a rounding to float32

SHAPES = [(1000, 32, 8), (1000, 35, 8), (300, 7, 1), (300, 5, 16), (300, 1, 4), (40, 9, 4), (1, 6, 4), (6, 0, 4)]
"""Nodes, features, columns of a group: even and ragged groups, one group, fewer nodes than centroids, no columns."""


def mixed(num_nodes: int, num_columns: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    """Numbers of very different sizes, some rows of which are equal."""
    random = np.random.default_rng(seed)
    numbers = random.standard_normal((num_nodes, num_columns)) * 10 ** random.uniform(-3, 3, num_columns)
    numbers[num_nodes // 2 :: 3] = numbers[:1]
    return numbers.astype(dtype)


def learnt(features: np.ndarray, **keys: int) -> Product:
    codec = Product(**keys)
    codec.learn(Features(features, str(features.dtype)))
    return codec


def squared_distances(features: np.ndarray, codec: Product) -> np.ndarray:
    """(m, num_groups, 256) in float64."""
    each = (features.astype(np.float32).astype(np.float64)[:, :, None] - codec.state()["centroids"]) ** 2
    starts = range(0, features.shape[1], codec.columns)
    return np.stack([each[:, start : start + codec.columns].sum(1) for start in starts], 1)


def expected(codec: Product, codes: np.ndarray) -> np.ndarray:
    """(m, F) float32: the numbers of the centroids, one after the other."""
    centroids = codec.state()["centroids"]
    numbers = [[centroids[f, row[f // codec.columns]] for f in range(len(centroids))] for row in codes]
    return np.array(numbers, np.float32).reshape(len(codes), len(centroids))


def error(codec: Product, features: np.ndarray) -> float:
    """Sum of the squared differences between features and decoded ones."""
    decoded = codec.decode(torch.from_numpy(codec.encode(features)), torch.float64).numpy()
    return float(((decoded - features) ** 2).sum())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("num_nodes", "num_columns", "columns"), SHAPES)
def test_codes_are_of_nearest_centroids_and_decode_to_them(num_nodes, num_columns, columns, dtype) -> None:
    """A difference, its square and each of the sums may be rounded, so a distance has a relative error of at most
    (columns + 2) EPSILON; the nearest centroid, and the one that was taken, may both be wrong by it."""
    features = mixed(num_nodes, num_columns, dtype)
    codec = learnt(features, columns=columns, sample_nodes=500, iterations=3)
    codes = codec.encode(features)
    assert codes.dtype == np.uint8 and codes.shape == (num_nodes, -(-num_columns // columns))
    assert codes.flags.c_contiguous
    if num_columns:
        distances = squared_distances(features, codec)
        taken = np.take_along_axis(distances, codes[:, :, None].astype(np.int64), 2)[:, :, 0]
        assert (taken <= distances.min(2) * (1 + 3 * (columns + 2) * EPSILON)).all()
    index = torch.from_numpy(np.random.default_rng(1).integers(0, num_nodes, 77))
    for number in (torch.float32, torch.float64):
        decoded = codec.decode(torch.from_numpy(codes), number)
        assert decoded.dtype == number and decoded.is_contiguous()
        assert torch.equal(decoded, torch.from_numpy(expected(codec, codes)).to(number))
        assert torch.equal(codec.decode_rows(torch.from_numpy(codes), index, number), decoded[index])
        assert codec.decode(torch.from_numpy(codes[:0]), number).shape == (0, num_columns)


def test_of_centroids_that_are_equally_near_the_first_is_taken() -> None:
    """With small integers every distance is exact, and many are equal."""
    random = np.random.default_rng(0)
    features = random.integers(-3, 4, (2000, 10)).astype(np.float32)
    codec = Product(columns=4)
    codec.load_state({"centroids": torch.from_numpy(random.integers(-3, 4, (10, 256)).astype(np.float32))})
    distances = squared_distances(features, codec)
    assert ((distances == distances.min(2, keepdims=True)).sum(2) > 1).mean() > 0.2
    assert np.array_equal(codec.encode(features), distances.argmin(2))  # argmin takes the first


def test_centroids_and_codes_have_the_same_bits_for_any_number_of_threads() -> None:
    features, results = mixed(3000, 70), []
    for num_threads in (1, 2, 5):
        torch.set_num_threads(num_threads)
        codec = learnt(features, columns=8, sample_nodes=2000)
        codes = codec.encode(features)
        decoded = codec.decode(torch.from_numpy(codes), torch.float32).numpy()
        results.append((codec.state()["centroids"].tobytes(), codes.tobytes(), decoded.tobytes()))
    assert results[0] == results[1] == results[2]
    assert learnt(features, columns=8, sample_nodes=2000, seed=1).state()["centroids"].tobytes() != results[0][0]


@pytest.mark.parametrize("num_distinct", [1, 2, 256])
def test_at_most_256_different_rows_are_kept_exactly(num_distinct: int) -> None:
    """Each is a centroid, however often it occurs: k-means++ chooses no row that is a centroid already."""
    random = np.random.default_rng(0)
    rows = random.standard_normal((num_distinct, 5)).astype(np.float32)
    features = rows[np.concatenate([np.arange(num_distinct), random.integers(0, num_distinct, 3000) // 9])]
    codec = learnt(features, columns=3)
    codes = codec.encode(features)
    assert torch.equal(codec.decode(torch.from_numpy(codes), torch.float32), torch.from_numpy(features))
    assert len(np.unique(codes[:, 0])) == num_distinct


def test_an_iteration_moves_centroids_to_the_means_of_their_rows() -> None:
    """Sums of small integers are exact. Centroids that are the nearest of no row stay."""
    random = np.random.default_rng(0)
    rows = random.integers(-3, 4, (2000, 4)).astype(np.float32)
    before = random.integers(-9, 10, (4, 256)).astype(np.float32)
    codec, centroids, wanted = Product(columns=4), before.copy(), before.copy()
    codec.load_state({"centroids": torch.from_numpy(before)})
    codes = codec.encode(rows)[:, 0]
    for k in np.unique(codes):
        wanted[:, k] = rows[codes == k].mean(0, dtype=np.float64)
    refine(rows, centroids)
    assert np.array_equal(centroids, wanted)
    num_moved = (centroids != before).any(0).sum()
    assert 20 < num_moved <= len(np.unique(codes)) < 250


def test_iterations_and_narrow_groups_bring_the_centroids_nearer() -> None:
    random = np.random.default_rng(0)
    features = (random.standard_normal((4000, 6)) @ random.standard_normal((6, 24))).astype(np.float32)
    errors = [error(learnt(features, columns=8, iterations=count), features) for count in (1, 2, 5, 10)]
    assert errors == sorted(errors, reverse=True)
    errors = [error(learnt(features, columns=count), features) for count in (1, 2, 4, 8, 24)]
    assert errors == sorted(errors)
    assert errors[0] < 1e-3 * ((features - features.mean(0)) ** 2).sum()


def test_rows_that_are_far_from_all_others_have_centroids() -> None:
    """A start with random rows would miss most of them."""
    features = np.random.default_rng(0).standard_normal((20_000, 4)).astype(np.float32)
    features[::1000] += 1000 * np.arange(1, 21)[:, None].astype(np.float32)
    codec = learnt(features, columns=4)
    kept = codec.decode(torch.from_numpy(codec.encode(features[::1000])), torch.float32).numpy()
    assert np.abs(kept - features[::1000]).max() < 1


def test_numbers_beyond_float32_are_refused() -> None:
    features = np.array([[1.0, 1e200], [2.0, 3.0]])
    with np.errstate(over="ignore"), pytest.raises(DataError, match="beyond float32"):
        learnt(features)
    with np.errstate(over="ignore"), pytest.raises(DataError, match="beyond float32"):
        learnt(features[1:]).encode(features)


def test_features_of_no_nodes() -> None:
    codec = learnt(np.empty((0, 5), np.float32), columns=2)
    assert codec.encode(np.empty((0, 5), np.float32)).shape == (0, 3)


def test_what_was_learnt_is_kept_and_serves_other_ranks(tmp_path: Path) -> None:
    features = Features(mixed(700, 11), "float32")
    keys: dict[str, object] = {"name": "product", "columns": 4}
    rows, state = encoded(Product(4), Cache(str(tmp_path)), keys, features)
    again, kept = encoded(Product(4), Cache(str(tmp_path)), keys, features)
    assert np.array_equal(rows, again) and np.array_equal(state["centroids"], kept["centroids"])
    some = EncodedRows.of(Product(4), features)
    assert some is not None and some.shape == (700, 3) and np.array_equal(some[100:333], rows[100:333])
    other = Product(4)
    other.load_state({name: torch.from_numpy(array) for name, array in state.items()})
    assert np.array_equal(other.encode(features[:]), rows)
    assert np.array_equal(other.decode(torch.from_numpy(rows), torch.float32).numpy(), expected(other, rows))


@pytest.mark.parametrize(("num_nodes", "num_columns", "columns"), SHAPES)
def test_the_operations_of_a_gpu_find_the_same_rows(num_nodes: int, num_columns: int, columns: int) -> None:
    features = mixed(num_nodes, num_columns)
    codec = learnt(features, columns=columns, iterations=1)
    codes = torch.from_numpy(codec.encode(features))
    for some in (codes, codes[:0]):
        decoded = looked_up(codec.table, some)[:, :num_columns]
        assert torch.equal(decoded, codec.decode(some, torch.float32))


@pytest.mark.gpu
@pytest.mark.parametrize(("num_nodes", "num_columns", "columns"), SHAPES)
def test_a_gpu_decodes_to_the_same_bits(num_nodes: int, num_columns: int, columns: int) -> None:
    features = mixed(num_nodes, num_columns)
    codec = learnt(features, columns=columns, iterations=1)
    codes = torch.from_numpy(codec.encode(features))
    wanted = codec.decode(codes, torch.float64)
    codec.load_state({name: torch.from_numpy(array).cuda() for name, array in codec.state().items()})
    index = torch.arange(0, num_nodes, 2)
    assert torch.equal(codec.decode(codes.cuda(), torch.float64).cpu(), wanted)
    assert torch.equal(codec.decode_rows(codes.cuda(), index.cuda(), torch.float64).cpu(), wanted[index])
    assert np.array_equal(codec.encode(features), codes.numpy())


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"columns": 0}, "codec.columns=0 is out of range: give 1 or more"),
        ({"sample_nodes": -5}, "codec.sample_nodes=-5 is out of range: give 1 or more"),
        ({"iterations": 0}, "codec.iterations=0 is out of range: give 1 or more"),
        ({"seed": -1}, "codec.seed=-1 is out of range: give 0 or more"),
    ],
)
def test_keys_out_of_range_are_refused(keys: dict[str, int], line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Product(**keys)
    assert str(caught.value) == line
