"""The activation between two layers: a ReLU, and the dropout of the next layer's input."""

from dataclasses import dataclass

from torch import Tensor

from fullgnn.kernels.dropout.mask import Mask
from fullgnn.kernels.epilogue.epilogue import Epilogue


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
