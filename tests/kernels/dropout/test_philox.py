import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import Tensor

from fullgnn.errors import ConfigError
from fullgnn.kernels.dropout import philox
from fullgnn.kernels.dropout.philox import Mask, drop, drop_, dropout, philox_4x32
from fullgnn.kernels.support import gpu
from tests.kernels.dropout.philox import LOW, reference
from tests.triton_device import DEVICE, needs_triton

STREAM = {"p": 0.3, "seed": 2**40 + 17, "epoch": 3, "layer": 1}


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_known_answers_of_random123(counter: str, key: str, words: str) -> None:
    ctr, expected, k = (np.array([int(word, 16) for word in text.split()]) for text in (counter, words, key))
    assert np.array_equal(philox_4x32(ctr, k), expected)
    many = philox_4x32(np.broadcast_to(ctr, (2, 3, 4)), k)
    assert many.shape == (2, 3, 4) and many.dtype == np.uint32 and np.all(many == expected)


def mask_of(node_id: Tensor, p: float, seed: int, epoch: int, layer: int) -> Mask:
    return Mask(node_id, p, seed, torch.tensor(epoch, device=node_id.device), layer)


def torch_path(x: Tensor, mask: Mask) -> Tensor:
    return philox.drop_into_torch(torch.empty_like(x), x, mask)


@pytest.mark.sample(4)
@pytest.mark.parametrize("num_columns", [1, 3, 4, 5, 41, 602, 2500])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_path_gives_the_same_elements(num_columns: int, dtype: torch.dtype) -> None:
    x = torch.randn(131, num_columns, dtype=dtype, generator=torch.Generator().manual_seed(0))
    node_id = torch.randint(0, 2**32, (131,), generator=torch.Generator().manual_seed(1))
    node_id[:5] = torch.tensor([0, 1, 2**31 - 1, 2**31, 2**32 - 1])
    for stream in (
        STREAM,
        {"p": 0.5, "seed": 0, "epoch": 0, "layer": 0},
        {"p": 0.99, "seed": 2**64 - 1, "epoch": LOW, "layer": LOW},
    ):
        expected = reference(x, node_id, **stream)
        assert torch.equal(drop(x, mask_of(node_id, **stream)), expected)
        assert torch.equal(drop_(x.clone(), mask_of(node_id, **stream)), expected)
        assert torch.equal(torch_path(x, mask_of(node_id, **stream)), expected)


@pytest.mark.parametrize("max_calls", [1, 33, 1000])
def test_chunks_of_the_torch_path_do_not_show(max_calls: int, monkeypatch) -> None:
    x, node_id = torch.randn(50, 41), torch.arange(50)
    whole = torch_path(x, mask_of(node_id, **STREAM))
    monkeypatch.setattr(philox, "MAX_CALLS", max_calls)
    assert torch.equal(torch_path(x, mask_of(node_id, **STREAM)), whole)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_other_types_drop_the_same_elements(dtype: torch.dtype) -> None:
    ones, node_id = torch.ones(64, 41), torch.arange(64)
    out = drop(ones.to(dtype), mask_of(node_id, **STREAM))
    assert out.dtype == dtype and torch.equal(out > 0, drop(ones, mask_of(node_id, **STREAM)) > 0)


STREAMS = [
    STREAM,
    {"p": 0.5, "seed": 0, "epoch": 0, "layer": 0},
    {"p": 0.01, "seed": 1, "epoch": 1, "layer": 1},
    {"p": 0.99, "seed": 2**64 - 1, "epoch": LOW, "layer": LOW},
    {"p": 0.5, "seed": 2**63 + 2**31, "epoch": 2**31, "layer": 2**31},
]


@needs_triton
@pytest.mark.sample(4)
@pytest.mark.parametrize("num_columns", [1, 3, 16, 41, 128, 129])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_triton_drops_the_same_elements(num_columns: int, dtype: torch.dtype, every_case: bool, triton_on_cpu) -> None:
    """Triton gives the CPU's results bit for bit, for input and output rows of any layout and in place."""
    from fullgnn.kernels.dropout._philox_gpu import dropout_gpu

    num_rows = 37 if num_columns > 100 else 131
    x = torch.randn(num_rows, num_columns, generator=torch.Generator().manual_seed(0)).to(dtype)
    x[3] = torch.inf
    node_id = torch.randint(0, 2**32, (num_rows,), generator=torch.Generator().manual_seed(1))
    node_id[:5] = torch.tensor([0, 1, 2**31 - 1, 2**31, 2**32 - 1])
    streams = STREAMS
    if dtype == torch.bfloat16 and DEVICE.type == "cpu":  # the interpreter truncates instead of rounding
        streams = [stream for stream in STREAMS if stream["p"] == 0.5]  # the factor 2 needs no rounding
    takes_all = num_columns == 41 and (every_case or dtype == torch.float32)
    for stream in streams if takes_all else streams[:1]:
        expected = torch_path(x, mask_of(node_id, **stream))
        if dtype != torch.bfloat16:
            assert torch.equal(expected, reference(x, node_id, **stream))
        on_device, ids = x.to(DEVICE), node_id.to(DEVICE)
        assert torch.equal(drop(on_device, mask_of(ids, **stream)).cpu(), expected)
        mask = mask_of(ids, **stream)
        assert torch.equal(drop_(on_device.clone(), mask).cpu(), expected)
        frame = torch.full((num_rows, num_columns + 6), torch.nan, dtype=dtype, device=DEVICE)
        dropout_gpu(torch.cat([on_device, frame], dim=1)[:, :num_columns], frame[:, 2:-4], mask)
        assert torch.equal(frame[:, 2:-4].cpu(), expected)
        assert frame[:, :2].isnan().all() and frame[:, -4:].isnan().all()
        drop_(frame[:, 2:-4].copy_(on_device), mask)
        assert torch.equal(frame[:, 2:-4].cpu(), expected)
        assert torch.equal(drop(on_device.t().contiguous().t(), mask).cpu(), expected)


@needs_triton
@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_triton_and_empty_parts(shape: tuple[int, int], triton_on_cpu) -> None:
    x, node_id = torch.empty(shape, device=DEVICE), torch.arange(shape[0], device=DEVICE)
    assert drop(x, mask_of(node_id, **STREAM)).shape == shape
    assert drop(x[:1].expand(shape), mask_of(node_id, **STREAM)).shape == shape  # with strides 0


@needs_triton
def test_words_inside_another_kernel(triton_on_cpu) -> None:
    """``kept`` and ``kept_tile``, called by another kernel, give the mask of the definition."""
    import tests.kernels.dropout.philox_kernel

    node = torch.tensor([5, 2**32 - 1, 2**31, 0, 77, 12345, 2**31 - 1, 1], device=DEVICE)
    for stream in STREAMS:
        expected = reference(torch.ones(8, 32), node.cpu(), **stream) > 0
        for mask in tests.kernels.dropout.philox_kernel.elements_kept(node, **stream):
            assert torch.equal(mask.cpu(), expected)


def test_without_triton_torch_drops_the_same_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU without Triton takes torch's path; here bfloat16 takes it, since the CPU's compiled path does not."""
    monkeypatch.setattr(gpu, "INTERPRETED", True)
    monkeypatch.setattr(gpu, "has_triton", lambda: False)
    called = []
    path = philox.drop_into_torch
    monkeypatch.setattr(philox, "drop_into_torch", lambda *args: called.append(1) or path(*args))
    x, node_id = torch.randn(50, 41, dtype=torch.bfloat16), torch.arange(50)
    assert torch.equal(drop(x, mask_of(node_id, **STREAM)), torch_path(x, mask_of(node_id, **STREAM)))
    assert called == [1, 1]


def test_rows_may_come_in_any_order_and_any_share() -> None:
    x, node_id = torch.randn(100, 17), torch.arange(100)
    whole = drop(x, mask_of(node_id, **STREAM))
    rows = torch.randperm(100, generator=torch.Generator().manual_seed(0))[:60]
    assert torch.equal(drop(x[rows], mask_of(node_id[rows], **STREAM)), whole[rows])


@pytest.mark.parametrize("name", ["seed", "epoch", "layer", "high half of the seed"])
def test_streams_are_independent(name: str) -> None:
    """Both streams keep 0.49 of a million elements in common, up to five standard deviations."""
    ones, node_id = torch.ones(10_000, 100), torch.arange(10_000)
    other = dict(STREAM)
    other[name.split()[-1]] += 2**33 if name.startswith("high") else 1
    kept = [drop(ones, mask_of(node_id, **stream)) > 0 for stream in (STREAM, other)]
    for mask, share in ((kept[0], 0.7), (kept[1], 0.7), (kept[0] & kept[1], 0.49)):
        assert abs(mask.double().mean().item() - share) < 5 * (share * (1 - share) / 1e6) ** 0.5


def test_gradient_and_second_gradient() -> None:
    x = torch.randn(7, 6, dtype=torch.float64, requires_grad=True)
    node_id = torch.arange(10, 17)
    assert torch.autograd.gradcheck(lambda x: dropout(x, mask_of(node_id, **STREAM)), x)
    assert torch.autograd.gradgradcheck(lambda x: dropout(x, mask_of(node_id, **STREAM)) ** 2, x)


def test_gradient_passes_where_the_element_was_kept() -> None:
    x = torch.ones(20, 9, requires_grad=True)
    out = dropout(x, mask_of(torch.arange(20), **STREAM))
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())


def test_zero_probability_changes_nothing_and_dropped_infinities_are_zero() -> None:
    x, node_id = torch.full((40, 5), torch.inf), torch.arange(40)
    assert dropout(x, mask_of(node_id, p=0.0, seed=1, epoch=2, layer=3)) is x
    assert torch.equal(drop(x, mask_of(node_id, p=0.0, seed=1, epoch=2, layer=3)), x)
    for apply in (drop, torch_path):
        assert set(apply(x, mask_of(node_id, **STREAM)).unique().tolist()) == {0.0, torch.inf}


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_empty_parts(shape: tuple[int, int]) -> None:
    x, node_id = torch.empty(shape), torch.arange(shape[0])
    assert drop(x, mask_of(node_id, **STREAM)).shape == torch_path(x, mask_of(node_id, **STREAM)).shape == shape


def test_strided_input() -> None:
    x, node_id = torch.randn(9, 30).T, torch.arange(0, 60, 2)[:30]
    for strided in (x, torch.randn(30, 12)[:, 2:7]):
        packed = drop(strided.contiguous(), mask_of(node_id.clone(), **STREAM))
        assert torch.equal(drop(strided, mask_of(node_id, **STREAM)), packed)
        assert torch.equal(torch_path(strided, mask_of(node_id, **STREAM)), packed)


@pytest.mark.parametrize("p", [-0.1, 1.0, 1.5, float("nan")])
def test_refuses_a_probability_outside_0_1(p: float) -> None:
    with pytest.raises(ConfigError, match="Dropout p is"):
        dropout(torch.ones(2, 2), mask_of(torch.arange(2), p, seed=0, epoch=0, layer=0))


@pytest.mark.sample(6)
def test_numba_comes_late_and_leaves_the_threads_of_torch_alone() -> None:
    """The script runs in a fresh process, which has imported nothing yet."""
    script = """
import sys, torch
torch.set_num_threads(1)
import fullgnn.kernels.dropout.philox, fullgnn.reorder
assert "numba" not in sys.modules
mask = fullgnn.kernels.dropout.philox.Mask(torch.arange(1000), 0.5, 0, torch.tensor(0), 0)
fullgnn.kernels.dropout.philox.dropout(torch.ones(1000, 8), mask)
assert "numba" in sys.modules
assert torch.get_num_threads() == 1, torch.get_num_threads()
"""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "OMP_"))}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_no_word_of_a_single_counter_is_a_scalar(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy 1 does not shift a scalar of uint64 by an integer, and shifts an array of one element."""
    counter, key = np.arange(4, dtype=np.uint32), np.array([5, 6], dtype=np.uint32)
    expected = philox_4x32(counter[None], key)[0]
    given, rounds = [], philox.rounds

    def noting(*words: tuple) -> list:
        given.extend(word for some in words for word in some)
        return rounds(*words)

    monkeypatch.setattr(philox, "rounds", noting)
    assert np.array_equal(philox_4x32(counter, key), expected) and expected.shape == (4,)
    assert len(given) == 6 and all(word.ndim > 0 for word in given)
