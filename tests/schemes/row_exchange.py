"""Helpers that test_row_exchange.py shares with other test modules."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from fullgnn.config import Config
from fullgnn.distributed import World
from fullgnn.engine import make_scheme
from fullgnn.graph import EdgeSet, Propagation
from fullgnn.schemes import Block, BlockRequest
from fullgnn.telemetry.meter import Meter
from tests.cases import dense_graph, sharded

WIDTH = 3
NEEDS = BlockRequest((Propagation(),), loss_rows=True, edges=(EdgeSet(),))


def whole(seed: Any, num_rows: int) -> np.ndarray:
    """(num_rows, WIDTH) whole numbers from -9 to 9."""
    return np.random.default_rng(seed).integers(-9, 10, (num_rows, WIDTH)).astype(np.float64)


def blocks_of(world: World, cfg: Config, kind: str) -> dict[str, Block]:
    scheme = make_scheme(cfg, world, Meter(world.device))
    graph = sharded(world, cfg, scheme, NEEDS, dense_graph(kind).graph())
    assert graph.loss_block is not None
    return {"all": graph.block, "loss": graph.loss_block}


def gradient(y: Tensor, x: Tensor, seed: Any, device: torch.device) -> tuple[np.ndarray, np.ndarray]:
    """Gradients that arrive at the rows of ``y``, and the gradient of ``x`` that follows from them."""
    arriving = torch.from_numpy(whole(seed, len(y))).to(device)
    (of_x,) = torch.autograd.grad(y, x, arriving)
    return arriving.cpu().numpy(), of_x.cpu().numpy()


def repeated(world: World, cfg: Config) -> list[bytes]:
    """The gradient of a fetch, three times, as bytes."""
    block = blocks_of(world, cfg, "symmetric")["all"]
    generator = torch.Generator().manual_seed(world.rank)
    x = torch.randn(len(block.source_id), WIDTH, dtype=torch.float64, generator=generator).requires_grad_()
    y = torch.randn(block.fetch(x).shape, dtype=torch.float64, generator=generator)
    gradients = []
    for _ in range(3):
        (gradient_of_x,) = torch.autograd.grad(block.fetch(x), x, y)
        gradients.append(gradient_of_x.numpy().tobytes())
    return gradients
