"""Models: ordinary ``torch.nn.Module``s with ``forward(x, blocks)``."""

from typing import TYPE_CHECKING

from fullgnn.room import import_on_use

if TYPE_CHECKING:
    from fullgnn.models.appnp import APPNP
    from fullgnn.models.gat import GAT
    from fullgnn.models.gatv2 import GATv2
    from fullgnn.models.gcn import GCN
    from fullgnn.models.gcnii import GCNII
    from fullgnn.models.gin import GIN
    from fullgnn.models.lightgcn import LightGCN
    from fullgnn.models.mlp import MLP
    from fullgnn.models.ngcn import NGCN
    from fullgnn.models.sage import SAGE
    from fullgnn.models.sgc import SGC

__all__ = ["APPNP", "GAT", "GCN", "GCNII", "GIN", "MLP", "NGCN", "SAGE", "SGC", "GATv2", "LightGCN"]

import_on_use(__name__)
