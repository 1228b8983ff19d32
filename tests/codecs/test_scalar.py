"""Scalar quantisation: codes and decoded numbers against plain NumPy in float64, and what stays exact."""

from unittest import mock

import numpy as np
import pytest
import torch

from fullgnn.codecs import Features, encoded
from fullgnn.codecs import features as features_file
from fullgnn.codecs.scalar import Scalar
from fullgnn.errors import ConfigError, DataError
from fullgnn.storage.cache import Cache

NOWHERE = Cache(None)
BITS = [1, 2, 4, 8]
WIDTHS = [1, 2, 3, 7, 8, 9, 33, 602]


def features(num_columns: int, dtype: str, num_rows: int = 70) -> np.ndarray:
    """Columns of several kinds: normal, shifted, constant, zeros and ones, skewed."""
    random = np.random.default_rng(num_columns)
    x = random.normal(size=(num_rows, num_columns))
    x[:, ::5] += 3
    x[:, 1::5] = 0.1
    x[:, 2::5] = random.random((num_rows, len(range(2, num_columns, 5)))) < 0.1
    x[:, 3::5] = np.exp(2 * x[:, 3::5])
    return x.astype(dtype)


def unpacked(rows: np.ndarray, num_columns: int, bits: int) -> np.ndarray:
    """The code of each column: byte b has those of the columns b, b + W, b + 2 W, ..., the first in its lowest bits."""
    codes = np.zeros((len(rows), num_columns), np.int64)
    for column in range(num_columns):
        turn, byte = divmod(column, rows.shape[1])
        codes[:, column] = (rows[:, byte] >> (bits * turn)) & (2**bits - 1)
    return codes


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("num_columns", WIDTHS)
@pytest.mark.parametrize("scale", ["column", "row"])
@pytest.mark.parametrize("bits", BITS)
def test_codes_are_the_nearest_levels(bits: int, scale: str, num_columns: int, dtype: str) -> None:
    x = features(num_columns, dtype)
    codec = Scalar(bits, scale)
    rows, state = encoded(codec, NOWHERE, {}, Features(x, dtype))
    head = 8 if scale == "row" else 0
    assert rows.dtype == np.uint8 and rows.shape == (70, head + -(-num_columns * bits // 8))
    codes, top, exact = unpacked(rows[:, head:], num_columns, bits), 2**bits - 1, x.astype(np.float64)
    if scale == "row":
        low, high = (rows[:, :8].copy().view(np.float32)[:, [one]].astype(np.float64) for one in (0, 1))
        step = (high - low) / top
    else:
        low, step = (state[name][None].astype(np.float64) for name in ("low", "step"))
    if bits == 1:
        axis = 1 if scale == "row" else 0
        above = exact > exact.mean(axis, keepdims=True)
        differ = (codes == 1) != above  # rounding of the mean decides where a number equals it
        assert not (differ & (np.abs(exact - exact.mean(axis, keepdims=True)) > 1e-6)).any()
        for side, level in ((codes == 0, low), (codes == 1, low + step)):
            count = side.sum(axis, keepdims=True)
            mean = np.where(side, exact, 0).sum(axis, keepdims=True) / np.maximum(1, count)
            np.testing.assert_allclose(*np.broadcast_arrays(np.where(count, level, 0), mean), rtol=1e-5, atol=1e-6)
    else:
        place = np.clip((exact - low) / np.where(step > 0, step, 1), 0, top)
        assert (np.abs(codes - place) <= 0.5 + 1e-4 * top).all()
    other = Scalar(bits, scale)
    other.load_state({name: torch.from_numpy(array) for name, array in state.items()})
    found = other.decode(torch.from_numpy(rows), getattr(torch, dtype))
    assert found.dtype == getattr(torch, dtype)
    np.testing.assert_allclose(found.numpy(), low + step * codes, rtol=1e-5, atol=1e-5)
    index = torch.tensor([3, 69, 3, 0])
    assert torch.equal(other.decode_rows(torch.from_numpy(rows), index, found.dtype), found[index])
    assert torch.equal(other.decode_torch(torch.from_numpy(rows), found.dtype), found)


@pytest.mark.parametrize("bits", BITS)
def test_zeros_and_ones_stay_exact_where_ones_are_rare(bits: int) -> None:
    """As bags of words are: 767 columns in 96 bytes, with a column that has one 1, and one that has one 0."""
    x = (np.random.default_rng(0).random((5000, 767)) < 0.01).astype(np.float32)
    x[:, :4] = [0, 1, 0, 1]
    x[4321, 2], x[1234, 3] = 1, 0
    codec = Scalar(bits, sample_nodes=10)
    rows, _ = encoded(codec, NOWHERE, {}, Features(x, "float32"))
    assert rows.shape[1] == -(-767 * bits // 8)
    assert torch.equal(codec.decode(torch.from_numpy(rows), torch.float32), torch.from_numpy(x))


@pytest.mark.parametrize("scale", ["column", "row"])
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("value", [0.1, 1 / 3, -7.25, 0.0, 1e20])
def test_constant_features_stay_exact(value: float, bits: int, scale: str) -> None:
    x = np.full((1000, 5), value, np.float32)
    codec = Scalar(bits, scale)
    rows, _ = encoded(codec, NOWHERE, {}, Features(x, "float32"))
    assert torch.equal(codec.decode(torch.from_numpy(rows), torch.float32), torch.from_numpy(x))


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_equally_spaced_numbers_stay_exact(bits: int) -> None:
    x = np.random.default_rng(0).integers(0, 2**bits, (3000, 12)).astype(np.float32) * 0.25 - 1
    codec = Scalar(bits)
    rows, _ = encoded(codec, NOWHERE, {}, Features(x, "float32"))
    assert torch.equal(codec.decode(torch.from_numpy(rows), torch.float32), torch.from_numpy(x))


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_levels_of_normal_columns_lose_no_more_than_evenly_spaced_ones(bits: int) -> None:
    """Two known choices: from the smallest number to the largest, and the best for a normal distribution."""
    x = np.random.default_rng(1).normal(size=(20000, 6)).astype(np.float32)
    x[:, 3:] = np.random.default_rng(2).random((20000, 3))
    codec = Scalar(bits)
    rows, _ = encoded(codec, NOWHERE, {}, Features(x, "float32"))
    lost = np.square(codec.decode(torch.from_numpy(rows), torch.float32).numpy() - x).mean(0)
    even = (x.max(0) - x.min(0)) / (2**bits - 1)
    code = np.rint((x - x.min(0)) / even)
    assert (lost <= 1.05 * np.square(x.min(0) + code * even - x).mean(0)).all()
    if bits == 2:
        np.testing.assert_allclose(lost[:3], 0.1188, rtol=0.05)  # Max (1960)


@pytest.mark.parametrize("scale", ["column", "row"])
@pytest.mark.parametrize("bits", BITS)
def test_neither_threads_nor_blocks_change_a_bit(bits: int, scale: str) -> None:
    x = features(37, "float32", 500)
    found = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        with mock.patch.object(features_file, "BLOCK_BYTES", 5000):
            found.append(encoded(Scalar(bits, scale, sample_nodes=100), NOWHERE, {}, Features(x, "float32")))
    for rows, state in found[1:]:
        np.testing.assert_array_equal(rows, found[0][0])
        assert all((state[name] == array).all() for name, array in found[0][1].items())


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_nan_and_infinity_are_refused(wrong: float) -> None:
    x = np.zeros((50, 3), np.float32)
    x[49, 2] = wrong
    with pytest.raises(DataError, match="^features hold NaN or infinity[^\n]*$"):
        encoded(Scalar(2), NOWHERE, {}, Features(x, "float32"))


@pytest.mark.parametrize("keys", [{"bits": 3}, {"scale": "table"}, {"sample_nodes": 0}, {"seed": -1}])
def test_wrong_keys_are_refused(keys: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="^codec.* is out of range: give [^\n]*$"):
        Scalar(**keys)  # type: ignore[arg-type]
