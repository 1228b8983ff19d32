"""kernel=auto times its candidates on a GPU; here Triton's interpreter runs them, and the tests make up the times."""

import logging
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fullgnn.config import Config
from fullgnn.distributed import World
from fullgnn.engine import make_scheme
from fullgnn.kernels.spmm import AutoKernel, Epilogue, LocalCSR, TorchCSR, TritonCSR, autotune, fixed_choice
from fullgnn.kernels.support import gpu
from fullgnn.kernels.support.rehearsal import rehearsal
from fullgnn.kernels.support.trials import TensorPeak
from fullgnn.storage.cache import Cache
from fullgnn.telemetry.meter import Meter
from tests.cases import config
from tests.kernels.spmm.matrices import integers, local_csr
from tests.kernels.spmm.on_gpu import dense_mask, on_device
from tests.triton_device import DEVICE, needs_triton

pytestmark = needs_triton
ROWS = ["torch", "csr"]
FLOAT32 = [*ROWS, "packed"]


class Clock:
    """A stand-in for ``time_ms`` that returns the next of ``times``, or raises an entry that is an exception."""

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
def runs_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "INTERPRETED", DEVICE.type == "cpu")
    monkeypatch.setattr(autotune, "FEW_EDGES", 1)
    monkeypatch.setattr(autotune, "SOME_EDGES", 1)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Clock]:
    def make(*times: float | Exception) -> Clock:
        made = Clock(*times)
        monkeypatch.setattr(autotune, "time_ms", made)
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
    assert times.asked == len(FLOAT32), "each candidate is measured once"
    assert kernel.name_for(DEVICE, torch.float32) == f"{FLOAT32[best]} (41)"
    said = [record.getMessage() for record in caplog.records]
    assert (
        len(said) == 1 and f"41 columns of a 20 x 50 block with {adj.nnz} non-zeros: {FLOAT32[best]} 1.00 ms" in said[0]
    )


def test_every_width_is_measured_and_only_winners_stay_prepared(clock) -> None:
    winners = "torch", "packed", "csr"
    times = clock(*(1.0 if name == winner else 2.0 for winner in winners for name in FLOAT32))
    kernel, (adj, dense) = AutoKernel(), block()
    prepared = kernel.prepare(adj, torch.float32)
    for width, formats in ((8, 1), (41, 2), (128, 3), (8, 3), (41, 3)):
        multiplied(kernel, prepared, dense, width, torch.float32)
        assert {*prepared.block.prepared} == {*winners[:formats]}, "what was not chosen is freed"
    assert times.asked == 3 * len(FLOAT32)
    assert kernel.name_for(DEVICE, torch.float32) == "csr (128); packed (41); torch (8)"
    held = kernel.tensors(prepared)
    assert sum(tensor is adj.indices for tensor in held) >= 1 and len(held) > 2


@pytest.mark.parametrize(("weighted", "dtype"), [(True, torch.float32), (False, torch.float64)])
def test_tensor_cores_are_no_candidates_for_weights_and_double_precision(weighted: bool, dtype, clock) -> None:
    times = clock(2, 1)
    kernel, (adj, dense) = AutoKernel(), block(weighted)
    multiplied(kernel, kernel.prepare(adj, dtype), dense, 16, dtype)
    assert times.asked == len(ROWS) and kernel.name_for(DEVICE, dtype) == "csr (16)"


def test_small_blocks_are_not_worth_compiling_for(clock, monkeypatch: pytest.MonkeyPatch) -> None:
    adj, dense = block()
    for few, some, names in ((adj.nnz, adj.nnz + 1, "csr (16)"), (adj.nnz + 1, adj.nnz + 2, "torch (16)")):
        monkeypatch.setattr(autotune, "FEW_EDGES", few)
        monkeypatch.setattr(autotune, "SOME_EDGES", some)
        times, kernel = clock(2, 1), AutoKernel()
        multiplied(kernel, kernel.prepare(adj, torch.float32), dense, 16, torch.float32)
        assert kernel.name_for(DEVICE, torch.float32) == names
        assert times.asked == (len(ROWS) if names == "csr (16)" else 0), "one candidate needs no measuring"


def test_a_candidate_that_fails_is_left_out(clock, caplog) -> None:
    clock(5, RuntimeError("out of\n memory"), 4)
    kernel, (adj, dense) = AutoKernel(), block()
    multiplied(kernel, kernel.prepare(adj, torch.float32), dense, 16, torch.float32)
    assert kernel.name_for(DEVICE, torch.float32) == "packed (16)"
    assert "kernel=auto: csr is disabled (out of memory)" in caplog.text


class Miscompiled(TritonCSR):
    """A kernel that multiplies one number of the result by 1 + ``error``."""

    def __init__(self, error: float):
        super().__init__()
        self.error, self.calls = error, 0

    def spmm(self, block: Any, x: torch.Tensor, out: torch.Tensor, *others: Any) -> None:
        self.calls += 1
        super().spmm(block, x, out, *others)
        out[-2, -1] *= 1 + self.error

    def name_for(self, device: torch.device, dtype: torch.dtype) -> str:
        return f"off by {self.error}"


def some_candidates(monkeypatch: pytest.MonkeyPatch, *kernels: Any) -> None:
    monkeypatch.setattr(autotune, "candidates", lambda adj, dtype: [TorchCSR(), *kernels])


@pytest.mark.sample(2)
@pytest.mark.parametrize("error", [1.0, -1.0, torch.nan, torch.inf])
def test_a_wrong_kernel_is_not_chosen(error: float, clock, monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    """A warning names it, also where it is slow; the fastest of the right ones is chosen."""
    wrong, worse = Miscompiled(error), Miscompiled(2.0)
    for times, chosen in (((9, 1, 2, 3), "csr"), ((2.5, 1, 2, 3), "torch"), ((0.5, 1, 2, 3), "torch")):
        caplog.clear()
        some_candidates(monkeypatch, wrong, worse, TritonCSR())
        clock(*times)
        kernel, (adj, dense) = AutoKernel(), block()
        prepared = kernel.prepare(adj, torch.float32)
        multiplied(kernel, prepared, dense, 16, torch.float32)
        assert kernel.name_for(DEVICE, torch.float32) == f"{chosen} (16)"
        said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        for line, candidate in zip(said, (wrong, worse), strict=True):
            assert f"off by {candidate.error} is disabled (its product differs from that of torch" in line
        assert {*prepared.block.prepared} == {chosen}


def test_a_right_kernel_is_compared_once_for_each_choice(clock, monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    """Rounding is no error, and neither is what torch's kernel finds to be infinite or no number."""
    nearly = Miscompiled(1e-6)
    some_candidates(monkeypatch, nearly)
    clock(2, 1)
    kernel, (adj, _) = AutoKernel(), block()
    prepared = kernel.prepare(adj, torch.float32)
    x = torch.randn(50, 8, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    x[3, 2], x[30] = torch.nan, torch.inf
    for _ in range(3):
        kernel.spmm(prepared, x, torch.empty(20, 8, device=DEVICE), accumulate=False)
    assert prepared.block.chosen == {8: "off by 1e-06"} and not caplog.records
    assert nearly.calls == 1 + 1 + 3, "timed, compared, and multiplied"


def test_without_torch_there_is_nothing_to_compare_with(clock, monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    some_candidates(monkeypatch, Miscompiled(1.0))
    clock(RuntimeError("out of memory"), 1)
    kernel, (adj, _) = AutoKernel(), block()
    prepared = kernel.prepare(adj, torch.float32)
    kernel.spmm(prepared, torch.ones(50, 8, device=DEVICE), torch.empty(20, 8, device=DEVICE), accumulate=False)
    assert prepared.block.chosen == {8: "off by 1.0"} and len(caplog.records) == 1


def test_errors_are_those_of_the_whole_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autotune, "CHUNK_ELEMENTS", 12)  # two rows at a time
    reference = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
    computed = reference.clone()
    assert autotune.relative_error(computed, reference) == 0 == autotune.relative_error(computed * 0, reference * 0)
    computed[4, 1] += 0.5
    error = autotune.relative_error(computed, reference)
    assert error == pytest.approx(float((computed - reference).norm() / reference.norm()), rel=1e-6)
    assert autotune.relative_error(computed, reference * 0) == torch.inf
    reference[4, 1], reference[5, 0] = torch.nan, torch.inf
    assert autotune.relative_error(computed, reference) == 0
    computed[6, 4] = torch.nan
    assert not autotune.relative_error(computed, reference) <= 1


def test_a_checksum_is_that_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs 24 bytes for each number of a chunk only, and differs where numbers change places."""
    numbers = torch.randint(2**31 - 1, (70_000,), dtype=torch.int32, generator=torch.Generator().manual_seed(0))
    place = torch.arange(70_000) % 65_521 + 1
    for chunk in (1 << 22, 999):
        monkeypatch.setattr(autotune, "CHUNK_ELEMENTS", chunk)
        assert autotune.checksum(numbers) == int((numbers.long() * place).sum()) != autotune.checksum(numbers.flip(0))


def test_the_choice_is_kept_for_the_same_block_and_width(clock, tmp_path: Path, caplog) -> None:
    caplog.set_level(logging.INFO)

    def run(adj: LocalCSR, dense: torch.Tensor, width: int) -> str:
        kernel = AutoKernel()
        kernel.remember_in(Cache(str(tmp_path)))
        multiplied(kernel, kernel.prepare(adj, torch.float32), dense, width, torch.float32)
        return kernel.name_for(DEVICE, torch.float32)

    times = clock(2, 1, 3)
    adj, dense = block()
    assert run(adj, dense, 8) == run(adj, dense, 8) == "csr (8)" and times.asked == len(FLOAT32)
    assert "choice from the cache: csr" in caplog.text
    times = clock(1, 2, 3)
    assert run(adj, dense, 9) == "torch (9)" and times.asked == len(FLOAT32)
    times = clock(1, 2, 3)
    other = adj.indices.clone()
    row = int(adj.indptr.diff().nonzero()[0])
    there = set(adj.indices[adj.indptr[row] : adj.indptr[row + 1]].tolist())
    other[adj.indptr[row]] = min({*range(50)} - there)  # one edge elsewhere
    changed = LocalCSR(adj.indptr, other, None, 20, 50)
    dense = dense.clone()
    dense[row, adj.indices[adj.indptr[row]]], dense[row, other[adj.indptr[row]]] = 0, 1
    assert run(changed, dense, 8) == "torch (8)" and times.asked == len(FLOAT32)


def test_a_rehearsal_compiles_all_candidates_or_the_choice_of_the_cache(
    clock, three: list["Made"], tmp_path: Path
) -> None:
    times, (adj, _) = clock(2, 1, 3), block()
    for first_run, rehearsed in ((True, [1, 1, 1]), (False, [0, 1, 0])):
        kernel = AutoKernel()
        kernel.remember_in(Cache(str(tmp_path)))
        prepared = kernel.prepare(adj, torch.float32)
        for made in three:
            made.calls.clear()
        with rehearsal(1):
            product(kernel, prepared, 8)
        assert [len(made.calls) for made in three] == rehearsed
        assert not prepared.block.chosen and not prepared.block.prepared and times.asked == (0 if first_run else 3)
        product(kernel, prepared, 8)
        assert prepared.block.chosen == {8: "medium"}


def test_a_run_keeps_choices_where_it_keeps_other_things(ranks, tmp_path: Path) -> None:
    assert ranks(1)(cache_of_kernel, config(f"runtime.cache_dir={tmp_path}")) == [tmp_path]
    assert ranks(1)(cache_of_kernel, config()) == [None]


def cache_of_kernel(world: World, cfg: Config) -> Path | None:
    return make_scheme(cfg, world, Meter(world.device)).kernel.autotune.cache.folder


MB = 1 << 20


class Made:
    """A kernel whose format takes ``size`` MB, and which records its calls."""

    def __init__(self, name: str, size: int):
        self.name, self.size, self.prepared = name, size, 0
        self.calls: list[dict[str, Any]] = []

    def prepare(self, adj: LocalCSR, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        self.prepared += 1
        return adj.indices, torch.ones(self.size * MB, dtype=torch.uint8)

    def spmm(self, block: Any, x: torch.Tensor, out: torch.Tensor, accumulate: bool, epilogue: Epilogue) -> None:
        call = {"out": out, "before": out.clone(), "accumulate": accumulate, "epilogue": epilogue}
        self.calls.append(call)
        out.fill_(len(self.calls))

    def tensors(self, block: Any) -> list[torch.Tensor]:
        return list(block)

    def name_for(self, device: torch.device, dtype: torch.dtype) -> str:
        return self.name


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> list[Made]:
    """Candidates of 1, 10 and 20 MB."""
    made = [Made("small", 1), Made("medium", 10), Made("large", 20)]
    monkeypatch.setattr(autotune, "candidates", lambda adj, dtype: made)
    return made


def product(kernel: AutoKernel, prepared: Any, width: int, accumulate: bool = False, **epilogue: Any) -> torch.Tensor:
    wide = torch.arange(20 * (width + 3), dtype=torch.float32).view(20, width + 3)
    out = wide[:, :width]
    kernel.spmm(prepared, torch.ones(50, width), out, accumulate, Epilogue(**epilogue))
    return out


def test_what_is_timed_is_the_call_that_is_made(clock, three: list[Made]) -> None:
    clock(2, 1, 3)
    kernel, (adj, _) = AutoKernel(), block()
    scale = torch.rand(20)
    out = product(kernel, kernel.prepare(adj, torch.float32), 8, accumulate=True, scale=scale, relu=True)
    tried, made = three[0].calls[0], three[1].calls[-1]
    assert tried["accumulate"] and tried["epilogue"].scale is scale and tried["epilogue"].relu
    assert torch.equal(tried["before"], made["before"]) and tried["out"].stride() == out.stride() == (11, 1)
    assert made["out"] is out and all(kernel.calls[0]["out"] is not out for kernel in three)


def test_a_format_is_made_again_for_another_width_unless_it_was_chosen(clock, three: list[Made]) -> None:
    clock(2, 1, 3, 2, 1, 3, 3, 2, 1)
    kernel, (adj, _) = AutoKernel(), block()
    prepared = kernel.prepare(adj, torch.float32)
    for width, times_prepared in ((8, [1, 1, 1]), (16, [2, 1, 2]), (41, [3, 1, 3]), (8, [3, 1, 3])):
        product(kernel, prepared, width)
        assert [made.prepared for made in three] == times_prepared
    assert {*prepared.block.prepared} == {"medium", "large"}


def test_the_fastest_so_far_and_one_other_are_prepared_at_a_time(clock, three: list[Made]) -> None:
    """Formats of trials are not memory of the run, and the slower one of two is freed before the next is made."""
    clock(1, 2, 3, 2, 1, 3)
    kernel, (adj, _) = AutoKernel(), block()
    prepared = kernel.prepare(adj, torch.float32)
    peak = TensorPeak(torch.device("cpu"))
    with peak.watch():
        product(kernel, prepared, 8)  # small, 1 MB, and then medium or large
        assert MB <= peak.bytes < 1.1 * MB
        assert 21 * MB <= peak.trial_bytes < 21.1 * MB
        product(kernel, prepared, 16)  # and medium, 10 MB
        assert 11 * MB <= peak.bytes < 11.1 * MB
    assert 31 * MB <= peak.trial_bytes < 31.1 * MB


class FakeEvent:
    clock = 0.0

    def __init__(self, enable_timing: bool):
        assert enable_timing

    def record(self) -> None:
        self.at = FakeEvent.clock

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: "FakeEvent") -> float:
        return end.at - self.at


class FakeGraph:
    """A CUDA graph whose first replay takes 70 ms, and each later one 40 ms."""

    def __init__(self, said: list[str], breaks: bool):
        self.said, self.breaks, self.took = said, breaks, 70.0

    def capture(self, launch: Callable[[], None]) -> None:
        self.said.append("capture")
        launch()
        if self.breaks:
            raise RuntimeError("no graph to be had")

    def replay(self) -> None:
        self.said.append("replay")
        FakeEvent.clock += self.took
        self.took = 40.0

    def reset(self) -> None:
        self.said.append("reset")


class FakeStream:
    def wait_stream(self, other: "FakeStream") -> None:
        pass


@pytest.mark.parametrize("breaks", [False, True])
def test_ten_products_in_a_graph_are_timed(monkeypatch: pytest.MonkeyPatch, breaks: bool) -> None:
    said: list[str] = []
    monkeypatch.setattr(autotune, "CudaGraph", lambda: FakeGraph(said, breaks))
    monkeypatch.setattr(torch.cuda, "Stream", FakeStream)
    monkeypatch.setattr(torch.cuda, "current_stream", FakeStream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    captured = ["run", "capture", *["run"] * 10]
    if breaks:
        with pytest.raises(RuntimeError, match="no graph"):
            autotune.time_ms(lambda: said.append("run"))
        assert said == [*captured, "reset"]
    else:
        assert autotune.time_ms(lambda: said.append("run")) == 4.0
        assert said == [*captured, *["replay"] * (1 + autotune.ROUNDS), "reset"]


def names_chosen(deterministic: bool, monkeypatch: pytest.MonkeyPatch, folder: Path | None, seed: int) -> str:
    """The kernels that multiply two blocks by three widths when the measured times are random."""
    random = np.random.default_rng(seed)
    monkeypatch.setattr(autotune, "time_ms", lambda run: float(random.random()))
    monkeypatch.setattr(autotune.Call, "by", lambda call, block: None)  # only the choice matters here
    kernel = AutoKernel()
    kernel.remember_in(Cache(None if folder is None else str(folder)))
    if deterministic:
        kernel.choose_by_rule()
    for adj in (block()[0], block(weighted=True)[0]):
        prepared = kernel.prepare(adj, torch.float32)
        for width in (8, 41, 128):
            kernel.spmm(prepared, torch.ones(50, width), torch.ones(20, width), False)
    return kernel.name_for(DEVICE, torch.float32)


def test_deterministic_choices_do_not_depend_on_times(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The deterministic choice neither times kernels nor reads what other runs have found."""
    monkeypatch.setattr(fixed_choice, "MIN_EDGES", 1)
    monkeypatch.setattr(fixed_choice, "MIN_DEGREE", 1)
    assert len({names_chosen(False, monkeypatch, None, seed) for seed in range(10)}) > 1
    names_chosen(False, monkeypatch, tmp_path, 0)
    packed = fixed_choice.Packed().name_for(DEVICE, torch.float32)
    choices = {names_chosen(True, monkeypatch, tmp_path, seed) for seed in range(10)}
    assert choices == {f"csr (8, 41, 128); {packed} (41, 128)"}


@pytest.mark.parametrize(
    ("changes", "packed"),
    [
        ({}, True),
        ({"num_rows": 100_000}, False),  # 21 entries a row
        ({"nnz": (1 << 20) - 1, "num_rows": 1000}, False),
        ({"width": 15}, False),
        ({"width": 16}, True),
        ({"pattern": False}, False),
        ({"dtype": torch.float64}, False),
        ({"capability": (7, 5)}, False),
        ({"capability": (10, 0)}, True),
    ],
)
def test_the_rule_is_that_of_the_docs(changes: dict[str, Any], packed: bool) -> None:
    case = {"num_rows": 20_000, "nnz": 1 << 21, "width": 64, "pattern": True}
    case |= {"dtype": torch.float32, "capability": (9, 0)} | changes
    kernel = fixed_choice.fixed_choice(**case)
    assert isinstance(kernel, fixed_choice.Packed if packed else fixed_choice.TritonCSR)


@pytest.mark.gpu
def test_time_is_that_of_the_gpu() -> None:
    x = torch.randn(4096, 4096, device="cuda")
    once, ten = [autotune.time_ms(lambda n=count: [x @ x for _ in range(n)] and None) for count in (1, 10)]
    assert 5 * once < ten < 20 * once
