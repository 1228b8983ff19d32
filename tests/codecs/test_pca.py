"""Principal component analysis, against a singular value decomposition in float64."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fullgnn.codecs import Features, encoded, features
from fullgnn.codecs.encoded import EncodedRows
from fullgnn.codecs.pca import PCA
from fullgnn.errors import ConfigError, DataError
from fullgnn.storage.cache import Cache

pytestmark = pytest.mark.sample(2)  # its tests take seconds, or compile kernels

SHAPES = [(1000, 20, 5), (777, 33, 8), (300, 4, 64), (300, 1, 1), (5, 12, 3), (1, 6, 2), (6, 0, 4)]
"""Nodes, features, dimensions: also more dimensions than features, fewer nodes than features, and no features."""

TOLERANCE = 3e-6
"""Relative to the largest number: tens of float32 roundings, each of at most 6e-8."""


def mixed(num_nodes: int, num_columns: int, dtype: str = "float32") -> np.ndarray:
    """Correlated columns whose variances fall fast, so that the directions are well defined, and that have a mean."""
    random = np.random.default_rng(0)
    independent = random.standard_normal((num_nodes, num_columns)) * 0.8 ** np.arange(num_columns)
    turned, _ = np.linalg.qr(random.standard_normal((num_columns, num_columns)))
    return (independent @ turned + random.uniform(-5, 5, num_columns)).astype(dtype)


def learnt(rows: np.ndarray, dimensions: int, bits: int = 32) -> PCA:
    codec = PCA(dimensions, bits)
    codec.learn(Features(rows, str(rows.dtype)))
    return codec


def decoded(codec: PCA, rows: np.ndarray, dtype: torch.dtype = torch.float64) -> np.ndarray:
    return codec.decode(torch.from_numpy(codec.encode(rows)), dtype).numpy()


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "BLOCK_BYTES", 1 << 13)


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("num_nodes", "num_columns", "dimensions"), SHAPES)
def test_rows_are_projected_to_the_first_singular_vectors(
    num_nodes: int, num_columns: int, dimensions: int, dtype: str, small_blocks: None
) -> None:
    rows = mixed(num_nodes, num_columns, dtype)
    codec, kept = learnt(rows, dimensions), min(dimensions, num_columns)
    codes = codec.encode(rows)
    assert codes.dtype == np.float32 and codes.shape == (num_nodes, kept) and codes.flags.c_contiguous
    mean = rows.mean(0, dtype=np.float64)
    vectors = np.linalg.svd(rows - mean, full_matrices=True)[2][:kept].T if num_columns else np.empty((0, 0))
    components = codec.state()["components"]
    assert np.allclose(codec.state()["mean"], mean, rtol=1e-12, atol=1e-12)
    assert np.allclose(components.T @ components, np.eye(kept), atol=TOLERANCE)
    centred, scale = rows - mean, np.abs(rows).max(initial=0)
    projected = centred @ vectors @ vectors.T  # does not depend on the signs, nor on directions without variance
    assert np.allclose(codes @ components.T, projected, atol=scale * TOLERANCE)
    for number in (torch.float32, torch.float64):
        decoded_rows = codec.decode(torch.from_numpy(codes), number)
        assert decoded_rows.dtype == number and decoded_rows.is_contiguous()
        assert np.allclose(decoded_rows.numpy(), projected + mean, atol=scale * TOLERANCE)
        assert codec.decode(torch.from_numpy(codes[:0]), number).shape == (0, num_columns)


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("num_nodes", "num_columns", "dimensions"), SHAPES)
def test_eight_bits_round_the_coordinates(
    num_nodes: int, num_columns: int, dimensions: int, dtype: str, small_blocks: None
) -> None:
    rows = mixed(num_nodes, num_columns, dtype)
    codec, exact, kept = learnt(rows, dimensions, 8), learnt(rows, dimensions), min(dimensions, num_columns)
    codes, state = codec.encode(rows), codec.state()
    assert codes.dtype == np.int8 and codes.shape == (num_nodes, kept) and codes.flags.c_contiguous
    assert all(np.array_equal(state[name], array) for name, array in exact.state().items())
    components = state["components"].astype(np.float64)
    coordinates = (rows.astype(np.float64) - state["mean"]) @ components
    scale = np.abs(rows).max(initial=0)
    assert np.allclose(state["steps"], np.abs(coordinates).max(0, initial=0) / 127, atol=scale * TOLERANCE)
    of_codes = codes * state["steps"].astype(np.float64)
    assert (np.abs(of_codes - coordinates) <= state["steps"] / 2 + scale * TOLERANCE).all()
    for number in (torch.float32, torch.float64):
        decoded_rows = codec.decode(torch.from_numpy(codes), number)
        assert decoded_rows.dtype == number and decoded_rows.is_contiguous()
        assert np.allclose(decoded_rows.numpy(), of_codes @ components.T + state["mean"], atol=scale * TOLERANCE)


def test_eight_bits_reach_the_largest_coordinate_and_no_further() -> None:
    rows = np.outer(np.array([-4, -1, 0, 1, 4]), [3.0, 4.0]).astype(np.float32)
    codec = learnt(rows, 2, 8)
    assert codec.encode(rows).T.tolist() == [[-127, -32, 0, 32, 127], [0] * 5]  # the second direction has no variance
    assert np.allclose(decoded(codec, rows[[0, 4]]), rows[[0, 4]], atol=1e-5)
    assert codec.encode(5 * rows).T.tolist() == [[-127, -127, 0, 127, 127], [0] * 5]  # of another graph


def test_eight_bits_lose_less_than_floats_in_as_many_bytes() -> None:
    rows = mixed(2000, 40)
    errors = [np.square(decoded(learnt(rows, *keys), rows) - rows).sum() for keys in ((3, 32), (12, 8), (12, 32))]
    assert errors[0] > 10 * errors[1] and errors[2] < errors[1] < 1.1 * errors[2]


def test_variances_fall_and_signs_are_fixed() -> None:
    rows = mixed(2000, 16)
    codec = learnt(rows, 16)
    variances = codec.encode(rows).var(0)
    assert (np.diff(variances) < 0).all()
    for component in codec.state()["components"].T:
        assert component[np.abs(component).argmax()] > 0


def test_no_other_directions_lose_less() -> None:
    """The squared error is the sum of the squares of the other singular values (Eckart and Young)."""
    rows = mixed(1500, 30, "float64")
    values = np.linalg.svd(rows - rows.mean(0), compute_uv=False)
    for dimensions in (1, 2, 7, 29):
        error = ((decoded(learnt(rows, dimensions), rows) - rows) ** 2).sum()
        assert np.isclose(error, (values[dimensions:] ** 2).sum(), rtol=1e-5)


def test_a_large_mean_costs_no_digits(small_blocks: None) -> None:
    """In the sums of x x^T the mean would be 1e16 times the variance, and the whole of float64."""
    rows = mixed(3000, 12, "float64")
    far = rows + 1e8
    near, moved = (learnt(some, 4) for some in (rows, far))
    assert np.allclose(near.state()["components"], moved.state()["components"], atol=1e-5)
    assert np.allclose(decoded(moved, far) - 1e8, decoded(near, rows), atol=1e-4)


def test_the_state_has_the_same_bits_for_any_number_of_threads(small_blocks: None) -> None:
    rows, states = mixed(5000, 70), []
    for num_threads in (1, 2, 5):
        torch.set_num_threads(num_threads)
        states.append([array.tobytes() for array in learnt(rows, 9).state().values()])
    assert states[0] == states[1] == states[2]


def test_features_are_not_written_to() -> None:
    for dtype in ("float32", "float64"):
        rows = mixed(50, 4, dtype)
        rows.flags.writeable = False
        before = rows.copy()
        assert decoded(learnt(rows, 2), rows).shape == rows.shape and np.array_equal(rows, before)


def test_numbers_that_are_too_large_are_refused() -> None:
    with pytest.raises(DataError, match="beyond float64"):
        learnt(np.array([[1.0, 1e200], [2.0, 3.0]]), 1)
    with pytest.raises(DataError, match="beyond float32"):
        learnt(np.array([[1.0, 2.0], [2.0, 3.0]]), 1).encode(np.array([[1e100, 0.0]]))


def test_features_of_no_nodes() -> None:
    assert learnt(np.empty((0, 5), np.float32), 2).encode(np.empty((0, 5), np.float32)).shape == (0, 2)


@pytest.mark.parametrize("bits", [8, 32])
def test_what_was_learnt_is_kept_and_serves_other_ranks(tmp_path: Path, bits: int) -> None:
    table = Features(mixed(700, 11), "float32")
    keys: dict[str, object] = {"name": "pca", "dimensions": 4, "bits": bits}
    rows, state = encoded(PCA(4, bits), Cache(str(tmp_path)), keys, table)
    again, kept = encoded(PCA(4, bits), Cache(str(tmp_path)), keys, table)
    assert np.array_equal(rows, again) and all(np.array_equal(state[name], kept[name]) for name in state)
    some = EncodedRows.of(PCA(4, bits), table)
    assert some is not None and some.shape == (700, 4) and np.allclose(some[100:333], rows[100:333], atol=1e-5)
    other = PCA(4, bits)
    other.load_state({name: torch.from_numpy(array) for name, array in state.items()})
    assert np.array_equal(other.encode(table[:]), rows)
    decoded_rows = other.decode(torch.from_numpy(rows), torch.float32)
    assert torch.equal(decoded_rows, learnt(table[:], 4, bits).decode(torch.from_numpy(rows), torch.float32))


@pytest.mark.gpu
@pytest.mark.parametrize("bits", [8, 32])
@pytest.mark.parametrize(("num_nodes", "num_columns", "dimensions"), SHAPES)
def test_a_gpu_decodes_the_same_rows(num_nodes: int, num_columns: int, dimensions: int, bits: int) -> None:
    rows = mixed(num_nodes, num_columns)
    codec = learnt(rows, dimensions, bits)
    codes = codec.encode(rows)
    wanted = codec.decode(torch.from_numpy(codes), torch.float64)
    codec.load_state({name: torch.from_numpy(array).cuda() for name, array in codec.state().items()})
    decoded_rows = codec.decode(torch.from_numpy(codes).cuda(), torch.float64).cpu()
    assert np.allclose(decoded_rows, wanted, atol=np.abs(rows).max(initial=0) * TOLERANCE)
    assert np.array_equal(codec.encode(rows), codes)


@pytest.mark.parametrize("dimensions", [0, -3])
def test_dimensions_out_of_range_are_refused(dimensions: int) -> None:
    with pytest.raises(ConfigError) as caught:
        PCA(dimensions)
    assert str(caught.value) == f"codec.dimensions={dimensions} is out of range: give 1 or more"


@pytest.mark.parametrize("bits", [4, 16, 0])
def test_bits_out_of_range_are_refused(bits: int) -> None:
    with pytest.raises(ConfigError, match=f"codec.bits={bits} is out of range: give 8 or 32"):
        PCA(4, bits)
