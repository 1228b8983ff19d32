"""Scalar quantisation: codes and levels against a reference, what stays exact, and the same bits everywhere."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fullgnn.codecs import Features, encoded
from fullgnn.codecs import features as module_of_features
from fullgnn.codecs.scalar import Scalar
from fullgnn.errors import ConfigError, DataError
from fullgnn.storage.cache import Cache

BITS = (1, 2, 4, 8)
SCALES = ("column", "row")
GAUSSIAN_STEP = {2: 0.9957, 4: 0.3352, 8: 0.0308}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Features come in several blocks, as large ones do."""
    monkeypatch.setattr(module_of_features, "BLOCK_BYTES", 1 << 14)


def drawn(num_rows: int, num_columns: int, dtype: str, seed: int = 0) -> np.ndarray:
    """Columns in turn Gaussian, uniform, of whole numbers from 0 to 2 and mostly 0, on different scales."""
    rng = np.random.default_rng(seed)
    shape = num_rows, -(-num_columns // 4)
    kinds = rng.normal(2, 3, shape), rng.random(shape) - 5, rng.integers(0, 3, shape), rng.random(shape) ** 20
    return np.stack(kinds, 2).reshape(num_rows, -1)[:, :num_columns].astype(dtype)


def kept(codec: Scalar, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The encoded rows, and what they are decoded to."""
    codec.learn(Features(x, x.dtype.name))
    rows = codec.encode(x)
    return rows, codec.decode(torch.from_numpy(rows), torch.from_numpy(x).dtype).numpy()


def codes_of(rows: np.ndarray, bits: int, num_columns: int) -> np.ndarray:
    """(m, F) codes of rows without their levels, column by column."""
    codes = np.empty((len(rows), num_columns), np.int64)
    for column in range(num_columns):
        place, byte = divmod(column, rows.shape[1])
        codes[:, column] = rows[:, byte].astype(np.int64) // 2 ** (place * bits) % 2**bits
    return codes


def reference_levels(x: np.ndarray, bits: int) -> tuple[float, float, float]:
    """low, step and mean of the numbers ``x`` of a column, in float64, with all of them as the sample."""
    x, top = x.astype(np.float64), 2**bits - 1
    mean, numbers = x.mean(), np.unique(x)
    if bits == 1:
        low = x[x <= mean].mean()
        return low, x[x > mean].mean() - low, mean
    gaussian = GAUSSIAN_STEP[bits] * x.std()
    choices = [(x.min(), (x.max() - x.min()) / top), (mean - gaussian * top / 2, gaussian)]
    if len(numbers) > 1 and x.min() + top * (numbers[1] - x.min()) >= x.max() - 1e-9:
        choices.insert(0, (x.min(), numbers[1] - x.min()))
    return *min(choices, key=lambda levels: reference_error(x, *levels, top)), mean


def reference_error(x: np.ndarray, low: float, step: float, top: int) -> float:
    """The squared error, without what is only rounding."""
    return round(float(np.square(x - low - step * np.clip(np.round((x - low) / step), 0, top)).sum()), 6)


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("num_columns", [1, 5, 67, 134])
@pytest.mark.parametrize("bits", BITS)
def test_columns_are_kept_as_the_reference_keeps_them(bits: int, num_columns: int, dtype: str) -> None:
    x, codec = drawn(1000, num_columns, dtype), Scalar(bits)
    rows, decoded = kept(codec, x)
    assert rows.dtype == np.uint8 and rows.shape == (1000, -(-num_columns * bits // 8))
    codes, state = codes_of(rows, bits, num_columns), codec.state()
    assert state["low"].dtype == state["step"].dtype == decoded.dtype == dtype
    for column in range(num_columns):
        numbers = x[:, column].astype(np.float64)
        levels = reference_levels(x[:, column], bits)
        low, step, _origin = (float(state[name][column]) for name in ("low", "step", "origin"))
        np.testing.assert_allclose([low, step], levels[:2], rtol=1e-5 if dtype == "float32" else 1e-12, atol=1e-12)
        wanted = numbers > levels[2] if bits == 1 else np.clip(np.round((numbers - low) / step), 0, 2**bits - 1)
        assert np.array_equal(codes[:, column], wanted)
        np.testing.assert_allclose(
            decoded[:, column], low + step * wanted, rtol=1e-6 if dtype == "float32" else 1e-14, atol=1e-6
        )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("num_columns", [1, 5, 67, 134])
@pytest.mark.parametrize("bits", BITS)
def test_rows_are_kept_as_the_reference_keeps_them(bits: int, num_columns: int, dtype: str) -> None:
    x = drawn(300, num_columns, dtype)
    rows, decoded = kept(Scalar(bits, "row"), x)
    assert rows.shape == (300, 8 + -(-num_columns * bits // 8))
    codes, levels = codes_of(rows[:, 8:], bits, num_columns), rows[:, :8].copy().view(np.float32).astype(np.float64)
    for numbers, row_codes, (low, high), row in zip(x.astype(np.float64), codes, levels, decoded):
        is_above = numbers > numbers.mean()
        wanted = numbers.min(), numbers.max()
        if bits == 1:
            wanted = numbers[~is_above].mean(), numbers[is_above].mean() if is_above.any() else numbers.mean()
        np.testing.assert_allclose([low, high], wanted, rtol=1e-6)
        step = (high - low) / (2**bits - 1)
        number = is_above if bits == 1 else np.clip(np.round((numbers - low) / (step or 1)), 0, 2**bits - 1)
        assert np.array_equal(row_codes, number)
        np.testing.assert_allclose(row, low + step * number, rtol=1e-6 if dtype == "float32" else 1e-14, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("bits", BITS)
def test_zeros_and_ones_stay_exact(bits: int, scale: str, dtype: str) -> None:
    x = (np.random.default_rng(1).random((2000, 767)) < np.linspace(0, 1, 767) ** 4).astype(dtype)
    x[:, 3] = 0
    x[1234, 3] = 1  # the sample lacks it
    codec = Scalar(bits, scale, sample_nodes=10)
    rows, decoded = kept(codec, x)
    assert rows.shape[1] == {"column": 0, "row": 8}[scale] + -(-767 * bits // 8)
    assert decoded.tobytes() == x.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("bits", BITS)
def test_equal_and_equally_spaced_numbers_stay_exact(bits: int, dtype: str) -> None:
    num_rows = 30_011  # the mean of so many 0.1 is not 0.1
    constants = np.array([0.1, 1 / 3, -0.7, 1e-30, 0.0, -0.0, 3e38], dtype)
    x = np.tile(constants, (num_rows, 1))
    x[::2, 4] = -0.0
    _rows, decoded = kept(Scalar(bits), x)
    assert np.array_equal(decoded, x) and not np.signbit(decoded[:, 4:6]).any()
    assert np.array_equal(kept(Scalar(bits, "row"), x[:5, :1])[1], x[:5, :1].astype(np.float32))
    counts = [1, *range(2, min(2**bits, 40) + 1), 2**bits]
    spaced = np.stack([np.arange(num_rows) % count * 0.25 - 3 for count in counts], 1).astype(dtype)
    assert np.array_equal(kept(Scalar(bits, sample_nodes=50), spaced)[1], spaced)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("bits", BITS)
def test_bits_are_the_same_for_any_number_of_threads(bits: int, scale: str) -> None:
    x, results = drawn(700, 37, "float32"), []
    for num_threads in (1, 2, 5):
        torch.set_num_threads(num_threads)
        codec = Scalar(bits, scale, sample_nodes=100)
        rows, decoded = kept(codec, x)
        state = {name: array.tobytes() for name, array in codec.state().items()}
        results.append((state, rows.tobytes(), decoded.tobytes()))
    assert results[0] == results[1] == results[2]


@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("num_columns", [0, 1, 9, 37, 602])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("bits", BITS)
def test_all_ways_to_decode_have_the_same_bits(bits: int, scale: str, num_columns: int, dtype: torch.dtype) -> None:
    x = drawn(200, num_columns, str(dtype).removeprefix("torch."))
    for num_rows in (0, 1, 200):
        codec = Scalar(bits, scale)
        table = torch.from_numpy(kept(codec, x[:num_rows])[0])
        decoded = codec.decode(table, dtype)
        assert decoded.shape == (num_rows, num_columns) and decoded.dtype == dtype
        torch_decoded = codec.decode_torch(table, dtype)
        assert torch_decoded.is_contiguous() and torch.equal(torch_decoded, decoded)
        index = torch.randint(max(1, num_rows), (300 if num_rows else 0,), generator=torch.Generator().manual_seed(2))
        for ids in (index, index.int(), index[::2], index[:0]):
            assert torch.equal(codec.decode_rows(table, ids, dtype), decoded[ids])
    for wrong in (-1, 200):
        with pytest.raises(IndexError, match="no row"):
            codec.decode_rows(table, torch.tensor([3, wrong]), dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("bits", BITS)
def test_a_gpu_decodes_to_the_same_bits(bits: int, scale: str) -> None:
    codec, on_gpu = Scalar(bits, scale), Scalar(bits, scale)
    rows, decoded = kept(codec, drawn(500, 131, "float32"))
    on_gpu.load_state({name: torch.from_numpy(array).cuda() for name, array in codec.state().items()})
    table, index = torch.from_numpy(rows).cuda(), torch.arange(0, 500, 3, device="cuda")
    assert torch.equal(on_gpu.decode(table, torch.float32).cpu(), torch.from_numpy(decoded))
    assert torch.equal(on_gpu.decode_rows(table, index, torch.float32).cpu(), torch.from_numpy(decoded[::3]))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("bits", BITS)
def test_the_state_travels_to_another_instance(bits: int, scale: str, tmp_path: Path) -> None:
    x, keys = drawn(600, 21, "float32"), {"bits": bits, "scale": scale}
    codec = Scalar(bits, scale, sample_nodes=100, seed=3)
    rows, state = encoded(codec, Cache(str(tmp_path)), keys, Features(x, "float32"))
    again, kept_state = encoded(Scalar(bits, scale), Cache(str(tmp_path)), keys, Features(x, "float32"))
    assert np.array_equal(rows, again) and kept_state.keys() == state.keys()
    other = Scalar(bits, scale)
    other.load_state({name: torch.from_numpy(array) for name, array in kept_state.items()})
    table = torch.from_numpy(rows)
    assert torch.equal(other.decode(table, torch.float32), codec.decode(table, torch.float32))
    assert np.array_equal(other.encode(x[100:200]), rows[100:200])


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("bits", BITS)
def test_features_without_a_level_are_refused(bits: int, scale: str) -> None:
    signs = np.where(np.indices((40, 8)).sum(0) % 2 == 0, 1, -1).astype(np.float32)
    for wrong, words in (("nan", "NaN or infinity"), ("inf", "NaN or infinity"), ("3e38", "too large")):
        x = signs * np.float32(wrong) if words == "too large" else signs.copy()
        x[30, 2] = np.float32(wrong)
        with pytest.raises(DataError, match=words) as caught:
            encoded(Scalar(bits, scale), Cache(None), {}, Features(x, "float32"))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "keys", [{"bits": 3}, {"bits": "2"}, {"scale": "rows"}, {"sample_nodes": 0}, {"sample_nodes": 1.5}, {"seed": -1}]
)
def test_wrong_keys_are_refused(keys: dict) -> None:
    (name, value), *_ = keys.items()
    with pytest.raises(ConfigError, match=rf"codec\.{name}={value} is out of range: give [^\n]+$"):
        Scalar(**keys)
