"""What stands between two layers: a ReLU, and the dropout of the next layer's input."""

from dataclasses import dataclass

from torch import Tensor

from fullgnn.kernels.dropout.mask import Mask
from fullgnn.kernels.epilogue.epilogue import Epilogue


@dataclass(frozen=True, eq=False)
class Activation:
    """relu(Z), with dropout after it; or Z as it is.

    ReLU and dropout ride in the product that makes Z, or follow it in place. The gradient needs neither Z nor the
    mask: the result is positive just where the ReLU let a number through and the dropout kept it.
    """

    relu: bool = False
    dropout: Mask | None = None  # only after a ReLU

    def __post_init__(self) -> None:
        assert self.relu or self.dropout is None, "dropout rides after a ReLU alone: apply it by itself"

    @property
    def scale(self) -> float:
        """What the elements that are kept have been multiplied by."""
        return 1.0 if self.dropout is None else self.dropout.scale

    def after(self, bias: Tensor | None) -> Epilogue:
        """What the product that makes Z ends with."""
        return Epilogue(None, bias, self.relu, self.dropout)


IDENTITY = Activation()
