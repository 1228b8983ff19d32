"""The kernels for GPUs against a dense product in float64, compiled on a GPU, else in Triton's interpreter.

Where numbers are small integers every sum is exact, also in bfloat16 planes, and results must be equal.
"""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from fullgnn.errors import ConfigError, UnsupportedError
from fullgnn.kernels.spmm import (
    Epilogue,
    Kernel,
    Packed,
    Tile32,
    TritonCSR,
    _panels_cpu,
    panel_plan,
    tiles,
    triton_csr,
)
from fullgnn.kernels.support import gpu
from tests.kernels.spmm.matrices import integers, local_csr
from tests.kernels.spmm.on_gpu import MATRICES, check, dense_mask, on_device
from tests.triton_device import DEVICE, needs_triton

pytestmark = [needs_triton, pytest.mark.filterwarnings("ignore::RuntimeWarning")]  # NumPy warns of padding

KERNELS: dict[str, Callable[[], Kernel]] = {
    "csr": TritonCSR,
    "csr bf16": lambda: TritonCSR("bf16"),
    "tile32": Tile32,
    "tile32, every tile": lambda: Tile32(0.0),
    "packed": Packed,
}
EVERY_KIND = ["csr", "tile32", "packed"]
WIDTHS = [1, 8, 41, 100, 129]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use Triton, with thresholds that give small matrices heavy rows, panels in parts, and several stretches."""
    monkeypatch.setattr(gpu, "INTERPRETED", DEVICE.type == "cpu")
    monkeypatch.setattr(tiles, "CHUNK_EDGES", 150)
    monkeypatch.setattr(triton_csr, "CHAIN", 2)  # parts of 64 edges
    for name, value in {"SPLIT_GROUPS": 3, "PART_GROUPS": 2, "CHAIN_GROUPS": 2}.items():
        monkeypatch.setattr(panel_plan, name, value)


@pytest.mark.sample(13)
@pytest.mark.parametrize("matrix", MATRICES)
@pytest.mark.parametrize("name", KERNELS)
def test_product(name: str, matrix: str) -> None:
    for number, width in enumerate(WIDTHS if matrix == "ragged" else [17, 47]):
        check(KERNELS[name](), MATRICES[matrix], False, torch.float32, width, number)


@pytest.mark.parametrize("name", KERNELS)
def test_every_width(name: str, every_case: bool) -> None:
    """A GPU tests widths up to 700; the interpreter some widths of four kernels, or with --all 67 of every kernel."""
    if DEVICE.type == "cuda":
        widths = [*range(1, 701)]
    elif every_case:
        widths = [*range(1 + list(KERNELS).index(name) % 2, 129, 2), 256, 602, 700]
    elif name in EVERY_KIND:
        widths = [1, 17, 64, 129, 602]
    else:
        pytest.skip("with --all")
    for number, width in enumerate(widths):
        check(KERNELS[name](), dense_mask(9, 40), False, torch.float32, width, number)


@pytest.mark.sample(8)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weighted", [False, True], ids=["pattern", "weighted"])
@pytest.mark.parametrize("name", EVERY_KIND)
def test_weights_and_double_precision(name: str, weighted: bool, dtype: torch.dtype) -> None:
    """Tensor cores take neither weights nor float64, so the kernels for rows multiply all edges."""
    for number, width in enumerate([5, 48, 130]):
        check(KERNELS[name](), MATRICES["ragged"], weighted, dtype, width, number)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", EVERY_KIND)
def test_offsets_of_64_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (triton_csr, panel_plan):
        monkeypatch.setattr(module, "wide", lambda *_: True)
    for number, width in enumerate([5, 48, 130]):
        check(KERNELS[name](), MATRICES["ragged"], False, torch.float32, width, number)


@pytest.mark.parametrize("name", KERNELS)
def test_nothing_to_multiply(name: str) -> None:
    kernel = KERNELS[name]()
    for mask, width in ((np.zeros((3, 4), bool), 5), (np.zeros((0, 4), bool), 5), (np.ones((3, 4), bool), 0)):
        adj, _ = local_csr(mask, weighted=False)
        block = kernel.prepare(on_device(adj), torch.float32)
        for accumulate, expected in ((True, 7.0), (False, 0.0)):
            out = torch.full((len(mask), width), 7.0, device=DEVICE)
            kernel.spmm(block, torch.ones(4, width, device=DEVICE), out, accumulate)
            assert torch.equal(out, torch.full_like(out, expected))


@pytest.mark.parametrize("name", KERNELS)
def test_memory_is_counted(name: str) -> None:
    """csr holds four bytes for each edge and three words for each row; panels hold the ids and words of the groups."""
    adj, _ = local_csr(np.ones((64, 64), bool), weighted=False)
    kernel = KERNELS[name]()
    num_bytes = sum(tensor.nbytes for tensor in kernel.tensors(kernel.prepare(on_device(adj), torch.float32)))
    if name.startswith("csr"):
        assert num_bytes == 4 * 64 * 64 + 3 * 4 * 64
    else:
        bits = 64 * 64 // 8
        assert bits < num_bytes < bits + 2000


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="kernel.mode=bf16x2 is not known to kernel=csr"):
        TritonCSR("bf16x2")
    with pytest.raises(ConfigError, match="kernel.density_threshold=5.0 is no fraction"):
        Tile32(5.0)
    monkeypatch.setattr(gpu, "INTERPRETED", False)
    cpu = torch.device("cpu")
    with pytest.raises(UnsupportedError, match="kernel=csr multiplies float32 and float64 on a GPU, not .* on cpu"):
        TritonCSR().name_for(cpu, torch.float32)
    with pytest.raises(UnsupportedError, match="choose kernel=auto"):
        Tile32().name_for(cpu, torch.bfloat16)
    monkeypatch.setattr(gpu, "has_triton", lambda: False)
    with pytest.raises(UnsupportedError, match="kernel=csr needs Triton 3.6 or later, .* or choose kernel=torch"):
        TritonCSR().name_for(torch.device("cuda"), torch.float32)


def test_only_the_mode_that_rounds_says_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "fullgnn")
    for make in KERNELS.values():
        make()
    said = [record.getMessage() for record in caplog.records]
    assert said == ["kernel.mode=bf16 rounds the dense operand: the run is not exact"]


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", [name for name in KERNELS if not name.startswith("csr")])
@pytest.mark.parametrize("matrix", MATRICES)
def test_the_same_split_on_a_cpu(name: str, matrix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Triton, a CPU multiplies the panels as small dense products."""
    monkeypatch.setattr(gpu, "INTERPRETED", False)
    monkeypatch.setattr(_panels_cpu, "CPU_GROUPS", 4)
    kernel, (adj, dense) = KERNELS[name](), local_csr(MATRICES[matrix], weighted=False)
    block = kernel.prepare(adj, torch.float32)
    scale = integers(adj.num_rows, dtype=torch.float32, seed=2)
    x = integers(adj.num_cols, 41, dtype=torch.float32, seed=3)
    for accumulate in (False, True):
        out = integers(adj.num_rows, 41, dtype=torch.float32, seed=4)
        expected = scale.double()[:, None] * (dense @ x.double() + (out.double() if accumulate else 0))
        kernel.spmm(block, x, out, accumulate, Epilogue(scale))
        assert torch.equal(out.double(), expected)
