"""kernel=auto where it measures: on a GPU, and here with Triton's interpreter and times that the tests make up."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fullgnn import gpu
from fullgnn.cache import Cache
from fullgnn.config import Config
from fullgnn.dist import World
from fullgnn.engine import make_scheme
from fullgnn.kernels import AutoKernel, Epilogue, LocalCSR, fastest
from fullgnn.meter import Meter
from tests.cases import config
from tests.kernels.test_gpu_kernels import dense_mask, on_device
from tests.kernels.test_kernels import integers, local_csr
from tests.triton_device import DEVICE, needs_triton

pytestmark = needs_triton
FLOAT32 = ["torch", "csr", "persistent", "tile32 bf16x2", "packed 32 bf16x2", "packed 64 bf16x2", "packed 128 bf16x2"]


class Clock:
    """Takes the place of ``time_ms``: the next candidate takes the next of ``times``; an error is raised."""

    def __init__(self, *times: float | Exception):
        self.times, self.asked = list(times), 0

    def __call__(self, run: Callable[[], None]) -> float:
        self.asked += 1
        run()
        time = self.times.pop(0)
        if isinstance(time, Exception):
            raise time
        return time


@pytest.fixture(autouse=True)
def serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "INTERPRETED", DEVICE.type == "cpu")
    monkeypatch.setattr(fastest, "FEW_EDGES", 1)
    monkeypatch.setattr(fastest, "SOME_EDGES", 1)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Clock]:
    def make(*times: float | Exception) -> Clock:
        made = Clock(*times)
        monkeypatch.setattr(fastest, "time_ms", made)
        return made

    return make


def block(weighted: bool = False, dtype: torch.dtype = torch.float32) -> tuple[LocalCSR, torch.Tensor]:
    adj, dense = local_csr(dense_mask(20, 50), weighted)
    return on_device(adj), dense


def multiplied(kernel: AutoKernel, prepared, dense: torch.Tensor, width: int, dtype: torch.dtype) -> None:
    x, out = (integers(n, width, dtype=dtype, seed=n).to(DEVICE) for n in (dense.shape[1], dense.shape[0]))
    scale = integers(len(out), dtype=dtype, seed=2).to(DEVICE)
    expected = scale.double()[:, None] * (dense.to(DEVICE) @ x.double() + out)
    kernel.spmm(prepared, x, out, accumulate=True, epilogue=Epilogue(scale))
    assert torch.equal(out.double(), expected), "measuring must not write to the output"


@pytest.mark.parametrize("best", range(len(FLOAT32)))
def test_the_fastest_stays(best: int, clock, caplog) -> None:
    caplog.set_level(logging.INFO)
    times = clock(*(1.0 if number == best else 2.0 + number for number in range(len(FLOAT32))))
    kernel, (adj, dense) = AutoKernel(), block()
    prepared = kernel.prepare(adj, torch.float32)
    assert kernel.name_for(DEVICE, torch.float32) == "auto"
    for _ in range(2):
        multiplied(kernel, prepared, dense, 41, torch.float32)
    assert times.asked == len(FLOAT32), "measured once"
    assert kernel.name_for(DEVICE, torch.float32) == f"{FLOAT32[best]} (41)"
    said = [record.getMessage() for record in caplog.records]
    assert (
        len(said) == 1 and f"41 columns of a 20 x 50 block with {adj.nnz} non-zeros: {FLOAT32[best]} 1.00 ms" in said[0]
    )


def test_every_width_is_measured_and_only_winners_are_kept(clock) -> None:
    times = clock(1, 2, 9, 3, 4, 5, 6, *(6, 5, 9, 4, 3, 2, 1), *(3, 1, 9, 4, 5, 6, 7))
    kernel, (adj, dense) = AutoKernel(), block()
    prepared = kernel.prepare(adj, torch.float32)
    for width in (8, 41, 128, 8, 41):
        multiplied(kernel, prepared, dense, width, torch.float32)
    assert times.asked == 21
    assert kernel.name_for(DEVICE, torch.float32) == "csr (128); packed 128 bf16x2 (41); torch (8)"
    assert sorted(prepared[1]._prepared) == ["csr", "packed 128 bf16x2", "torch"]
    held = kernel.tensors(prepared)
    assert sum(tensor is adj.indices for tensor in held) >= 1 and len(held) > 2


@pytest.mark.parametrize(("weighted", "dtype"), [(True, torch.float32), (False, torch.float64)])
def test_tensor_cores_are_no_candidates_for_weights_and_double_precision(weighted: bool, dtype, clock) -> None:
    times = clock(2, 1, 9)
    kernel, (adj, dense) = AutoKernel(), block(weighted)
    multiplied(kernel, kernel.prepare(adj, dtype), dense, 16, dtype)
    assert times.asked == 3 and kernel.name_for(DEVICE, dtype) == "csr (16)"


def test_small_blocks_are_not_worth_compiling_for(clock, monkeypatch: pytest.MonkeyPatch) -> None:
    adj, dense = block()
    for few, some, names in ((adj.nnz, adj.nnz + 1, "csr (16)"), (adj.nnz + 1, adj.nnz + 2, "torch (16)")):
        monkeypatch.setattr(fastest, "FEW_EDGES", few)
        monkeypatch.setattr(fastest, "SOME_EDGES", some)
        times, kernel = clock(2, 1, 9), AutoKernel()
        multiplied(kernel, kernel.prepare(adj, torch.float32), dense, 16, torch.float32)
        assert kernel.name_for(DEVICE, torch.float32) == names
        assert times.asked == (3 if names == "csr (16)" else 0), "one candidate needs no measuring"


def test_a_candidate_that_fails_is_left_out(clock, caplog) -> None:
    clock(5, RuntimeError("out of\n memory"), 9, 4, 3, 7, 8)
    kernel, (adj, dense) = AutoKernel(), block()
    multiplied(kernel, kernel.prepare(adj, torch.float32), dense, 16, torch.float32)
    assert kernel.name_for(DEVICE, torch.float32) == "packed 32 bf16x2 (16)"
    assert "kernel=auto: csr is left out (out of memory)" in caplog.text


def test_the_choice_is_kept_for_the_same_block_and_width(clock, tmp_path: Path, caplog) -> None:
    caplog.set_level(logging.INFO)

    def run(adj: LocalCSR, dense: torch.Tensor, width: int) -> str:
        kernel = AutoKernel()
        kernel.remember_in(Cache(str(tmp_path)))
        multiplied(kernel, kernel.prepare(adj, torch.float32), dense, width, torch.float32)
        return kernel.name_for(DEVICE, torch.float32)

    times = clock(2, 1, 9, 3, 4, 5, 6)
    adj, dense = block()
    assert run(adj, dense, 8) == run(adj, dense, 8) == "csr (8)" and times.asked == 7
    assert "as found before: csr" in caplog.text
    times = clock(1, 2, 3, 4, 5, 6)
    assert run(adj, dense, 9) == "torch (9)" and times.asked == 7
    times = clock(1, 2, 3, 4, 5, 6)
    other = adj.indices.clone()
    row = int(adj.indptr.diff().nonzero()[0])
    there = set(adj.indices[adj.indptr[row] : adj.indptr[row + 1]].tolist())
    other[adj.indptr[row]] = min({*range(50)} - there)  # one edge elsewhere
    changed = LocalCSR(adj.indptr, other, None, 20, 50)
    dense = dense.clone()
    dense[row, adj.indices[adj.indptr[row]]], dense[row, other[adj.indptr[row]]] = 0, 1
    assert run(changed, dense, 8) == "torch (8)" and times.asked == 7


def test_a_run_keeps_choices_where_it_keeps_other_things(ranks, tmp_path: Path) -> None:
    assert ranks(1)(cache_of_kernel, config(f"runtime.cache_dir={tmp_path}")) == [tmp_path]
    assert ranks(1)(cache_of_kernel, config()) == [None]


def cache_of_kernel(world: World, cfg: Config) -> Path | None:
    return make_scheme(cfg, world, Meter(world.device)).kernel._fastest.cache.folder


@pytest.mark.gpu
def test_time_is_that_of_the_gpu() -> None:
    x = torch.randn(4096, 4096, device="cuda")
    once, ten = [fastest.time_ms(lambda n=count: [x @ x for _ in range(n)] and None) for count in (1, 10)]
    assert 5 * once < ten < 20 * once
