"""Panels on a CPU: the groups and the planes of ``_planes_gpu.py``, with small dense products."""

import torch
from torch import Tensor

from fullgnn.kernels.spmm.tiles import GROUP, PANEL, Panels

CPU_GROUPS = 1 << 10  # groups that are unpacked at a time


def split_planes(x: Tensor) -> list[Tensor]:
    """Float32 ``x`` as three addends: float32 with values of bfloat16.

    The values are truncated, not rounded: 8 + 8 + 8 bits are the 24 of float32, and no number overflows.
    """
    hi = _cut_off(x)
    mid = _cut_off(x - hi)
    return [hi, mid, (x - hi - mid).bfloat16().float()]


def _cut_off(x: Tensor) -> Tensor:
    """Float32 ``x`` without its low 16 bits, which bfloat16 does not have."""
    return (x.view(torch.int32) & -(1 << 16)).view(torch.float32)


def multiply_on_cpu(panels: Panels, x: Tensor, out: Tensor, accumulate: bool) -> None:
    """Write panels @ x to ``out``, or with ``accumulate`` add it to ``out``. ``CPU_GROUPS`` are unpacked at a time.

    The sum inside a group is float32, as on tensor cores, and the sum of groups is float64.
    """
    num_panels, width = len(panels.ptr) - 1, out.shape[1]
    padded = torch.zeros(panels.num_cols + GROUP, width)  # columns past the last have no entries
    padded[: panels.num_cols] = x
    planes = split_planes(padded)
    panel = torch.arange(num_panels).repeat_interleave(panels.ptr.diff().long())
    sums = torch.zeros(num_panels, PANEL, width, dtype=torch.float64)
    for groups in torch.arange(panels.num_groups).split(CPU_GROUPS):
        stretch = slice(int(groups[0]), int(groups[-1]) + 1)
        pattern = (panels.bits[stretch, :, None] >> torch.arange(GROUP, dtype=torch.int32) & 1).float()
        columns = panels.all_columns(stretch)
        for plane in planes:
            sums.index_add_(0, panel[stretch], torch.bmm(pattern, plane[columns]).double())
    total = sums.flatten(0, 1)[: panels.num_rows]
    if accumulate:
        out.add_(total)
    else:
        out.copy_(total)
