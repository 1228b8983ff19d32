"""Graph attention network with dynamic attention (Brody, Alon and Yahav, 2022)."""

from fullgnn.models.gat import GAT
from fullgnn.nn import GATv2Conv


class GATv2(GAT):
    """A ``GAT`` whose layers are ``GATv2Conv``.

    Args, Raises: see ``GAT``.
    """

    convolution = GATv2Conv
