"""What changes with the epoch in the modules of a model."""

import torch
from torch import Tensor


class DrawsByEpoch(torch.nn.Module):
    """A module that draws other random numbers in every epoch. ``set_epoch`` sets its ``epoch``."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch: Tensor
        # A tensor on the model's device, so that a captured CUDA graph reads the current epoch at every replay.
        self.register_buffer("epoch", torch.zeros((), dtype=torch.int64), persistent=False)


def set_epoch(model: torch.nn.Module, epoch: int) -> None:
    """Set the ``epoch`` of every module of ``model`` that draws anew in each epoch, such as ``Dropout``."""
    for module in model.modules():
        if isinstance(module, DrawsByEpoch):
            module.epoch.fill_(epoch)
