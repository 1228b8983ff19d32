"""Multiplies the columns that occur repeatedly in a panel of rows on tensor cores."""

from fullgnn.kernels.spmm.panels import PanelKernel
from fullgnn.kernels.spmm.tiles import split_columns


class Packed(PanelKernel):
    """Columns that occur at least twice in a panel of 32 rows are gathered once, 32 at a time; see ``panels.py``.

    The columns of a group need not be adjacent, so an order only has to bring rows with common neighbours together.
    ``Tile32`` is the special case of adjacent columns.
    """

    def __init__(self) -> None:
        super().__init__("packed", split_columns)
