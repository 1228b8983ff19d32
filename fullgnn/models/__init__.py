"""Models: ordinary ``torch.nn.Module``s with ``forward(x, blocks)``."""

from fullgnn.models.gcn import GCN
from fullgnn.models.mlp import MLP

__all__ = ["GCN", "MLP"]
