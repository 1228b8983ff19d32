"""Models: ordinary ``torch.nn.Module``s with ``forward(x, adj)``."""

from fullgnn.models.gcn import GCN
from fullgnn.models.mlp import MLP

__all__ = ["GCN", "MLP"]
