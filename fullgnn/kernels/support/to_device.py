"""Tensors of the host on a device, without waiting for the copy."""

import torch
from torch import Tensor


def move(tensor: Tensor, device: torch.device) -> Tensor:
    """``tensor`` on ``device``. A GPU copies it from page-locked memory, in the order of its stream."""
    pins = device.type == "cuda" and tensor.device.type == "cpu"
    return (tensor.pin_memory() if pins else tensor).to(device, non_blocking=True)
