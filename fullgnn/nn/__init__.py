"""Layers. A layer gets local rows and the ``Block`` that it reads. No layer knows the number of ranks."""

from typing import TYPE_CHECKING

from fullgnn.room import import_on_use

if TYPE_CHECKING:
    from fullgnn.kernels.epilogue.epilogue import Activation
    from fullgnn.kernels.loss.cross_entropy import cross_entropy
    from fullgnn.nn.attention_conv import AttentionConv
    from fullgnn.nn.contract import Contract, EdgeReads, RowReads, contract_of
    from fullgnn.nn.dropout import Dropout, set_epoch
    from fullgnn.nn.edge_values import EdgeValues
    from fullgnn.nn.gat_conv import GATConv
    from fullgnn.nn.gatv2_conv import GATv2Conv
    from fullgnn.nn.gcn2_conv import GCN2Conv
    from fullgnn.nn.gcn_conv import GCNConv
    from fullgnn.nn.gin_conv import GINConv
    from fullgnn.nn.layer import Layer
    from fullgnn.nn.linear import Linear
    from fullgnn.nn.message_conv import MessageConv
    from fullgnn.nn.neighbor_max import neighbor_max
    from fullgnn.nn.node_embedding import NodeEmbedding
    from fullgnn.nn.norms import BatchNorm, LayerNorm, make_norm
    from fullgnn.nn.powers_conv import PowersConv
    from fullgnn.nn.product_order import SPMM_ORDERS, set_spmm_order
    from fullgnn.nn.propagate import propagate, propagate_powers, propagate_with_restart
    from fullgnn.nn.sage_conv import SAGEConv

__all__ = [
    "SPMM_ORDERS",
    "Activation",
    "AttentionConv",
    "BatchNorm",
    "Contract",
    "Dropout",
    "EdgeReads",
    "EdgeValues",
    "GATConv",
    "GATv2Conv",
    "GCN2Conv",
    "GCNConv",
    "GINConv",
    "Layer",
    "LayerNorm",
    "Linear",
    "MessageConv",
    "NodeEmbedding",
    "PowersConv",
    "RowReads",
    "SAGEConv",
    "contract_of",
    "cross_entropy",
    "make_norm",
    "neighbor_max",
    "propagate",
    "propagate_powers",
    "propagate_with_restart",
    "set_epoch",
    "set_spmm_order",
]

import_on_use(__name__)
