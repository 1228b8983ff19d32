"""Helpers that test_gpu_kernels.py shares with other test modules."""

import numpy as np
import torch

from fullgnn.kernels.dropout.philox import Mask, drop_
from fullgnn.kernels.spmm import (
    Epilogue,
    Kernel,
    LocalCSR,
)
from tests.kernels.spmm.matrices import integers, local_csr
from tests.triton_device import DEVICE


def dense_mask(num_rows: int, num_cols: int) -> np.ndarray:
    """A dense corner, few entries elsewhere, every seventh row empty, one row full: every kind of tile, also empty."""
    random = np.random.default_rng(0)
    mask = random.random((num_rows, num_cols)) < 0.03
    mask[: num_rows // 2, : num_cols // 3] = random.random((num_rows // 2, num_cols // 3)) < 0.4
    mask[-20:, num_cols // 2 :] = False
    mask[3::7] = False
    mask[num_rows // 2] = True
    return mask


MATRICES = {
    "ragged": dense_mask(45, 99),
    "one row": np.ones((1, 90), bool),
    "one column": np.random.default_rng(0).random((70, 1)) < 0.5,
    "full": np.ones((40, 64), bool),
    "thin": np.random.default_rng(0).random((50, 300)) < 0.01,
}


def on_device(adj: LocalCSR) -> LocalCSR:
    values = None if adj.values is None else adj.values.to(DEVICE)
    return LocalCSR(adj.indptr.to(DEVICE), adj.indices.to(DEVICE), values, adj.num_rows, adj.num_cols)


def check(kernel: Kernel, mask: np.ndarray, weighted: bool, dtype: torch.dtype, width: int, number: int) -> None:
    """Check a product of integers, with layout and epilogue by ``number``, and NaNs around X."""
    adj, dense = local_csr(mask, weighted)
    margin, accumulate, finished = number % 2, number % 3 == 1, number % 4 > 1
    x_frame = torch.full((adj.num_cols + 2, width + 7 * margin), torch.nan, dtype=dtype, device=DEVICE)
    x = x_frame[1:-1, 3 * margin : 3 * margin + width]
    x.copy_(integers(adj.num_cols, width, dtype=dtype, seed=3))
    frame = integers(adj.num_rows + 4, width + 9 * margin, dtype=dtype, seed=4).to(DEVICE)
    out = frame[2:-2, 5 * margin : 5 * margin + width]
    expected = dense @ x.double().cpu() + (out.double().cpu() if accumulate else 0)
    epilogue = Epilogue()
    if finished:
        scale, bias = integers(adj.num_rows, dtype=dtype, seed=2), integers(width, dtype=dtype, seed=5)
        node_id = torch.arange(7, 7 + adj.num_rows)
        mask_ = Mask(node_id, 0.5, 2**40 + 1, torch.tensor(3), layer=1)
        expected = (scale.double()[:, None] * expected + bias.double()).relu()
        expected = drop_(expected.contiguous(), mask_)
        mask_ = Mask(node_id.to(DEVICE), 0.5, 2**40 + 1, torch.tensor(3, device=DEVICE), layer=1)
        epilogue = Epilogue(scale.to(DEVICE), bias.to(DEVICE), True, mask_)
    if not accumulate:
        out.fill_(torch.nan)
    expected_frame = frame.double().cpu()
    expected_frame[2:-2, 5 * margin : 5 * margin + width] = expected
    block = kernel.prepare(on_device(adj), dtype)
    kernel.spmm(block, x, out, accumulate, epilogue)
    assert torch.equal(frame.double().cpu(), expected_frame), (width, number)
