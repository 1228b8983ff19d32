"""What stands between two layers: a ReLU, and the dropout of the next layer's input."""

from dataclasses import dataclass

from torch import Tensor

from fullgnn.nn.dropout import Dropout
from fullgnn.nn.philox import dropout_


@dataclass(frozen=True, eq=False)
class Activation:
    """relu(Z), with dropout after it; or Z as it is.

    The ReLU rides in the product that makes Z, and the dropout follows in place. The gradient needs neither Z nor the
    mask: the result is positive just where the ReLU let a number through and the dropout kept it.
    """

    relu: bool = False
    dropout: Dropout | None = None  # only after a ReLU
    node_id: Tensor | None = None  # (num_rows,) int64, original ids of the rows, for the dropout

    def __post_init__(self) -> None:
        assert self.relu or self.dropout is None, "dropout rides after a ReLU alone: apply it by itself"

    @property
    def scale(self) -> float:
        """What the elements that are kept have been multiplied by."""
        return 1.0 if self.dropout is None else self.dropout.scale

    def drop_(self, y: Tensor) -> Tensor:
        """The dropout of relu(Z), in place."""
        if self.dropout is None or self.scale == 1:
            return y
        assert self.node_id is not None
        return dropout_(y, self.node_id, *self.dropout.stream)


IDENTITY = Activation()
