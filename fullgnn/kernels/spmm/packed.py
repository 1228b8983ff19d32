"""Multiplies the columns that occur repeatedly in a panel of rows on tensor cores."""

from fullgnn.errors import ConfigError
from fullgnn.kernels.spmm.panels import PanelKernel
from fullgnn.kernels.spmm.tiles import split_columns

PANEL_ROWS = (32, 64, 128)


class Packed(PanelKernel):
    """Columns that occur at least twice in a panel of rows are gathered once, 32 at a time; see ``panels.py``.

    The columns of a group need not be adjacent, so an order only has to bring rows with common neighbours together.
    ``Tile32`` is the special case of adjacent columns.

    Args:
        panel_rows: 32, 64 or 128. In a panel of more rows, more columns repeat, but a group is less dense.
        mode: ``bf16x3``, ``bf16x2``, ``bf16`` or ``ieee``; see ``panels.py``.
        planes: on a GPU, split X once per product instead of in each panel.

    Raises:
        ConfigError: ``panel_rows`` or ``mode`` is not one of these, or ``planes`` without tensor cores.
    """

    def __init__(self, panel_rows: int = 64, mode: str = "bf16x3", planes: bool = False):
        if panel_rows not in PANEL_ROWS:
            raise ConfigError(f"kernel.panel_rows={panel_rows} is not possible: choose 32, 64 or 128")
        super().__init__(f"packed {panel_rows}", mode, lambda adj: split_columns(adj, panel_rows), planes)
