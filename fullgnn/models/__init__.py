"""Models: ordinary ``torch.nn.Module``s with ``forward(x, blocks)``."""

from fullgnn.models.gat import GAT
from fullgnn.models.gatv2 import GATv2
from fullgnn.models.gcn import GCN
from fullgnn.models.mlp import MLP
from fullgnn.models.sage import SAGE

__all__ = ["GAT", "GATv2", "GCN", "MLP", "SAGE"]
