"""The precision that ``packed`` and ``tile32`` keep, in a product and in a training run."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch import Tensor

from fullgnn.distributed import World
from fullgnn.graph import Graph
from fullgnn.kernels.spmm import Packed, panel_plan
from fullgnn.kernels.spmm._panels_cpu import multiply_on_cpu, split_planes
from fullgnn.kernels.spmm.panel_plan import CHAIN_GROUPS, PART_GROUPS, SPLIT_GROUPS, PanelPlan, planes_columns
from fullgnn.kernels.spmm.tiles import PANEL, Panels
from fullgnn.kernels.support import gpu
from fullgnn.kernels.support.tuning import PanelTuning
from tests.cases import config
from tests.kernels.spmm.matrices import local_csr
from tests.kernels.spmm.on_gpu import on_device
from tests.schemes.training import final_losses
from tests.triton_device import DEVICE, needs_triton

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy warns of infinities


@pytest.fixture(params=[pytest.param("triton", marks=needs_triton), "cpu"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """The device of the kernel under test: the kernel for GPUs, perhaps interpreted, or the kernel for CPUs."""
    monkeypatch.setattr(gpu, "INTERPRETED", request.param == "triton" and DEVICE.type == "cpu")
    return DEVICE if request.param == "triton" else torch.device("cpu")


def floats() -> Tensor:
    """(64, 33) float32 of every exponent down to -103, with random bits, and the largest ones."""
    random = np.random.default_rng(0)
    bits = random.integers(0, 1 << 23, (64, 33)) | random.integers(127 - 103, 255, (64, 33)) << 23
    bits |= random.integers(0, 2, (64, 33)) << 31
    x = torch.from_numpy(bits.astype(np.uint32).view(np.float32).copy())
    x[0, :4] = torch.tensor([torch.finfo(torch.float32).max, torch.finfo(torch.float32).min, 0.0, 1.0])
    return x


def product(mask: np.ndarray, x: Tensor, device: torch.device) -> Tensor:
    """The product of ``packed``."""
    kernel = Packed()
    adj, _ = local_csr(mask, weighted=False)
    adj, out = on_device(adj) if device == DEVICE else adj, torch.empty(len(mask), x.shape[1], device=device)
    kernel.spmm(kernel.prepare(adj, torch.float32), x.to(device), out, accumulate=False)
    return out.cpu()


def test_one_entry_a_row_gives_back_every_bit(device: torch.device) -> None:
    """With one entry in each row, only the split of X could round."""
    x = floats()
    mask = np.zeros((131, 64), bool)
    mask[np.arange(131), np.arange(131) // 2 % 64] = True  # each column twice in its panel
    assert torch.equal(product(mask, x, device), x[torch.arange(131) // 2 % 64])


def test_planes_add_up_to_the_number() -> None:
    """Each plane has at most 8 bits; the smallest numbers lose only bits below 2^-126."""
    x = floats()
    hi, mid, lo = split_planes(x)
    assert torch.equal(hi.double() + mid.double() + lo.double(), x.double())
    for plane in (hi, mid, lo):
        assert torch.equal(plane.bfloat16().float(), plane)
    tiny = torch.arange(1, 5000).float() * torch.tensor(2.0) ** -149
    assert (sum(plane.double() for plane in split_planes(tiny)) - tiny.double()).abs().max() <= 2.0**-126


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_what_is_not_finite_spreads_in_its_panels_and_is_not_hidden(value: float, device: torch.device) -> None:
    """0 times infinity is NaN, so every row of a panel that reads the value is NaN or infinite in that column."""
    mask = np.zeros((64, 40), bool)
    mask[:32, :20] = True
    mask[5:9, :5] = False
    mask[32:, 20:] = True
    x = torch.ones(40, 3)
    x[3, 1] = value
    computed = product(mask, x, device)
    finite = torch.ones(64, 3, dtype=torch.bool)
    finite[:32, 1] = False
    assert torch.equal(computed.isfinite(), finite)
    assert torch.equal(computed[finite], torch.from_numpy(mask.sum(axis=1)).float()[:, None].expand(64, 3)[finite])


def hub_graph() -> Graph:
    """200 nodes with a few hubs, about 12 edges a node, binary features and random labels, which a model has to
    memorise, so that small differences grow."""
    random = np.random.default_rng(0)
    weight = (1.0 + np.arange(200)) ** -0.7
    ends = random.choice(200, 1500, p=weight / weight.sum()), random.choice(200, 1500, p=weight / weight.sum())
    adj = np.zeros((200, 200))
    adj[ends] = 1
    order = random.permutation(200)
    adj = np.maximum(adj, adj.T)[np.ix_(order, order)]
    features, labels = random.random((200, 60)) < 0.05, random.integers(0, 5, 200)
    train = random.random(200) < 0.6
    return Graph.from_scipy(
        csr_array(adj), features=features.astype(np.float32), labels=labels, train_mask=train, val_mask=~train
    )


def device_type(world: World) -> str:
    return world.device.type


def test_loss_of_100_epochs_is_that_of_float32_sums(ranks) -> None:
    """In longer runs, memorising labels amplifies the last bits of any sum."""
    training = ["model.dropout=0.0", "train.epochs=100", "train.eval_every=0"]
    (device,) = ranks(1)(device_type)
    cases = [["kernel=blocked" if device == "cpu" else "kernel=torch"], ["kernel=packed"]]
    exact, losses = ranks(1)(final_losses, [config(*case, *training) for case in cases], hub_graph())[0]
    assert losses == pytest.approx(exact, rel=1e-6, abs=0)


def one_row(num_groups: int) -> Panels:
    """A row of ones, 32 in each of ``num_groups`` groups."""
    columns = torch.arange(num_groups, dtype=torch.int32) * 32
    bits = torch.zeros(num_groups, PANEL, dtype=torch.int32)
    bits[:, 0] = -1
    ptr = torch.tensor([0, num_groups], dtype=torch.int32)
    return Panels(1, 32 * num_groups, 32 * num_groups, ptr, columns, bits)


def test_four_million_equal_addends_on_a_cpu() -> None:
    panels = one_row(1 << 17)
    x = torch.full((panels.num_cols, 2), 0.1)
    x[:, 1] = 1 / 3
    out = torch.empty(1, 2)
    multiply_on_cpu(panels, x, out, False)
    assert out[0].double().tolist() == pytest.approx((x[0].double() * panels.num_cols).tolist(), rel=1e-6, abs=0)


@pytest.fixture
def cutting_tensor_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the interpreter multiply as tensor cores may: 16 addends at a time are added to the sum exactly,
    which is then cut off to float32 (Fasi et al., "Numerical behavior of NVIDIA tensor cores", PeerJ CS 2021)."""
    if DEVICE.type == "cuda":
        pytest.skip("a GPU has real tensor cores")
    from triton.runtime import interpreter

    def create_dot(builder, a, b, total, *_):
        cut = total.data.astype(np.float32)
        for k in range(0, a.data.shape[1], 16):
            product = a.data[:, k : k + 16].astype(np.float64) @ b.data[k : k + 16].astype(np.float64)
            exact = product + cut
            cut = exact.astype(np.float32)
            cut = np.where(np.abs(cut) > np.abs(exact), np.nextafter(cut, np.float32(0)), cut)
        return interpreter.TensorHandle(cut, total.dtype.scalar)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", create_dot)
    monkeypatch.setattr(gpu, "INTERPRETED", True)


@needs_triton
def test_sums_on_tensor_cores_that_cut_off_do_not_drift(
    cutting_tensor_cores: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the default constants, 2,048 equal addends err by at most 1e-6, whole and in parts; in one chain by more."""
    panels, value = one_row(64), torch.tensor([[0.1, 1 / 3, 1.9999]])
    out, expected = torch.empty(1, 3), value.double() * panels.num_cols

    def error(**constants: int) -> float:
        for name, number in constants.items():
            monkeypatch.setattr(panel_plan, name, number)
        PanelPlan(panels).multiply(value.expand(panels.num_cols, 3).contiguous(), out, False)
        return float(((out - expected).abs() / expected).max())

    assert error() <= 1e-6 and error(SPLIT_GROUPS=32, PART_GROUPS=16) <= 1e-6
    assert error(SPLIT_GROUPS=64, CHAIN_GROUPS=64) > 2e-6, "a chain this long drifts"


@pytest.mark.parametrize("constants", [{}, {"planes_piece": 128, "planes_warps": 2}])
def test_pieces_cover_a_width(constants: dict[str, int]) -> None:
    """The last piece is at most twice as wide as what is left, or as wide as all threads need to load 16 bytes."""
    tuning = PanelTuning(**constants)
    smallest = 8 * tuning.planes_warps
    for width in range(1, 700):
        cuts = planes_columns(width, tuning)
        assert [cut.first for cut in cuts] == [0, *(cut.end for cut in cuts)][:-1]
        assert all(cut.total.bit_count() == 1 and smallest <= cut.total <= tuning.planes_piece for cut in cuts)
        left = width - cuts[-1].end + cuts[-1].count * cuts[-1].total
        assert 0 < left <= cuts[-1].count * cuts[-1].total < max(2 * left, smallest + 1)


def test_every_level_of_a_sum_is_short() -> None:
    """The default constants bound a chain, the chains of a part, and the parts that csr adds at once."""
    assert CHAIN_GROUPS <= 8 and PART_GROUPS <= SPLIT_GROUPS <= 32 * CHAIN_GROUPS and panel_plan.FEW_SUMS <= 16 * 32
    plan = PanelPlan(one_row(FOUR_MILLION := 1 << 17))
    assert [items.most for items in plan.sums] == [panel_plan.FEW_SUMS, FOUR_MILLION // PART_GROUPS // 256]
