"""The operations that a kernel applies to a product as it stores it."""

from dataclasses import dataclass, replace

from torch import Tensor

from fullgnn.kernels.dropout.mask import Mask


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
