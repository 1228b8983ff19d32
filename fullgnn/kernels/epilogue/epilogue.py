"""The operations that a kernel applies to a product as it stores it, and the activations that they compute."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fullgnn.kernels.dropout.philox import Mask, drop_
from fullgnn.kernels.support import gpu
from fullgnn.room import module_on_use

if TYPE_CHECKING:
    from fullgnn.kernels.epilogue import _epilogue_gpu
else:
    _epilogue_gpu = module_on_use("fullgnn.kernels.epilogue._epilogue_gpu")


@dataclass(frozen=True, eq=False)
class Epilogue:
    """The operations on a product Y as it is stored: dropout(relu(diag(scale) Y + bias)). Each part may be missing."""

    scale: Tensor | None = None  # (num_rows,)
    bias: Tensor | None = None  # (F,)
    relu: bool = False
    dropout: Mask | None = None  # mask of the (num_rows, F) result

    @property
    def is_empty(self) -> bool:
        return self.scale is None and self.bias is None and not self.relu and self.dropout is None

    def of(self, rows: slice) -> "Epilogue":
        """The same epilogue for some rows of the product."""
        scale = None if self.scale is None else self.scale[rows]
        return replace(self, scale=scale, dropout=None if self.dropout is None else self.dropout.of(rows))


NO_EPILOGUE = Epilogue()


def apply_epilogue_(y: Tensor, epilogue: Epilogue) -> Tensor:
    """Apply ``epilogue`` to (n, F) ``y`` in place, after a product whose kernel could not fuse it.

    On a GPU this is one pass over ``y``, elsewhere separate operations.
    """
    if gpu.runs_triton(y.device) and y.dtype in (torch.float32, torch.float64) and not epilogue.is_empty:
        return _epilogue_gpu.apply_gpu(y, epilogue)
    if epilogue.scale is not None:
        y.mul_(epilogue.scale[:, None])
    if epilogue.bias is not None:
        y.add_(epilogue.bias)
    if epilogue.relu:
        y.relu_()
    return y if epilogue.dropout is None else drop_(y, epilogue.dropout)


@dataclass(frozen=True, eq=False)
class Activation:
    """The function that follows a product Z: relu(Z), dropout(relu(Z)), or Z itself.

    ReLU and dropout are fused into the product that computes Z, or follow it in place. The gradient needs neither Z
    nor the mask: the result is positive exactly where Z is positive and the dropout keeps the element.
    """

    relu: bool = False
    dropout: Mask | None = None  # only after a ReLU

    def __post_init__(self) -> None:
        assert self.relu or self.dropout is None, "dropout is fused only after a ReLU: apply it by itself"

    @property
    def scale(self) -> float:
        """Factor by which the dropout scales the elements that it keeps."""
        return 1.0 if self.dropout is None else self.dropout.scale

    def epilogue(self, bias: Tensor | None) -> Epilogue:
        """The epilogue of the product that computes Z: ``bias``, then this activation."""
        return Epilogue(None, bias, self.relu, self.dropout)


IDENTITY = Activation()
