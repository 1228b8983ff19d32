"""The block-sparse product of Miao et al. 2023 (section 4.3, Algorithm 3)."""

from fullgnn.errors import ConfigError
from fullgnn.kernels.spmm.panels import PanelKernel
from fullgnn.kernels.spmm.tiles import split_tiles


class Tile32(PanelKernel):
    """Tiles of 32 x 32 with more than ``density_threshold`` x 1024 entries are multiplied as dense tiles on tensor
    cores, the other edges row by row. See ``panels.py``.

    A tile is stored as 32 words, with a bit for each entry. The precision differs from the paper: the product there is
    TF32, and here float32 in three bfloat16 planes, which hold all bits of float32.

    Args:
        density_threshold: in [0, 1); 0.05 as in the paper.

    Raises:
        ConfigError: ``density_threshold`` is no such number.
    """

    def __init__(self, density_threshold: float = 0.05):
        if not 0 <= density_threshold < 1:
            raise ConfigError(f"kernel.density_threshold={density_threshold} is no fraction: choose a value in [0, 1)")
        super().__init__("tile32", lambda adj: split_tiles(adj, density_threshold))
