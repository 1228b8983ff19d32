"""Helpers that test_message_conv.py shares with other test modules."""

import numpy as np
import torch
from torch import Tensor

from fullgnn.config import Config
from fullgnn.distributed import World
from fullgnn.engine import make_scheme
from fullgnn.nn import MessageConv
from fullgnn.nn.contract import block_request
from fullgnn.schemes import Block
from fullgnn.telemetry.meter import Meter
from tests.cases import dense_graph, sharded


def blocks(world: World, cfg: Config, kind: str, conv: MessageConv) -> dict[str, Block]:
    scheme = make_scheme(cfg, world, Meter(world.device))
    graph = sharded(world, cfg, scheme, block_request(conv, cfg.optimizations), dense_graph(kind).graph())
    assert graph.loss_block is not None
    return {"all": graph.block, "loss": graph.loss_block}


def features(num_nodes: int, whole: bool) -> Tensor:
    x = np.random.default_rng(0).standard_normal((num_nodes, 5))
    return torch.from_numpy(np.round(x) if whole else x)
