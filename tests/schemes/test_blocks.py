"""What a rank stores, receives and reuses."""

import numpy as np
import pytest
import torch

from fullgnn.config import Config, build
from fullgnn.dist import World
from fullgnn.meter import Meter
from fullgnn.train import load_shard
from tests.cases import LAYOUTS, config, dense_graph, layout_overrides

WIDTH = 6


def multiply_once(world: World, cfg: Config, kind: str) -> dict:
    """One forward and one backward product of this rank; what it cost and what is held."""
    meter = Meter(world.device)
    scheme = build(cfg.scheme, world=world, kernel=build(cfg.kernel), meter=meter)
    graph, _ = load_shard(cfg, scheme, dense_graph(kind).graph() if world.rank == 0 else None)
    adj = graph.adj
    x = torch.randn(len(adj.node_id), WIDTH, dtype=torch.float64, device=world.device, requires_grad=True)
    meter.take()
    y = adj.spmm(x)
    forward = meter.take().bytes_received
    y.sum().backward()
    meter.take()
    addresses = [buffer.data_ptr() for buffer in adj._buffers.values()]
    adj.spmm(x)
    return {
        "forward_bytes": forward,
        "num_rows": len(x),
        "part": world.rank // cfg.scheme["replication"],
        "sources": [stage.source for stage in adj._forward],
        "sizes": scheme._partition.sizes.tolist(),
        "nnz": sum(stage.block.values().numel() for stage in adj._forward if stage.block is not None),
        "int32": all(
            stage.block.col_indices().dtype == torch.int32 for stage in adj._forward if stage.block is not None
        ),
        "shares_blocks": adj._backward is adj._forward,
        "buffers_reused": addresses == [buffer.data_ptr() for buffer in adj._buffers.values()],
        "imbalance": scheme.nnz_imbalance,
    }


@pytest.mark.parametrize(("world_size", "replication"), LAYOUTS)
@pytest.mark.parametrize("kind", ["symmetric", "directed"])
def test_each_block_is_stored_once_and_bytes_are_exact(ranks, world_size: int, replication: int, kind: str) -> None:
    cfg = config(*layout_overrides(replication), "runtime.dtype=float64", "normalization=sym")
    found = ranks(world_size)(multiply_once, cfg, kind)
    dense = dense_graph(kind).adj.copy()
    np.fill_diagonal(dense, 1)
    assert sum(rank["nnz"] for rank in found) == np.count_nonzero(dense)  # no block twice, none missing
    for rank in found:
        assert rank["int32"] and rank["buffers_reused"]
        assert rank["shares_blocks"] == (kind == "symmetric")
        broadcast = sum(rank["sizes"][j] for j in rank["sources"] if j != rank["part"]) * WIDTH * 8
        all_reduce = 2 * (replication - 1) * rank["num_rows"] * WIDTH * 8 // replication
        assert rank["forward_bytes"].get("broadcast", 0) == broadcast
        assert rank["forward_bytes"].get("all_reduce", 0) == all_reduce
    loads = [rank["nnz"] for rank in found]
    assert found[0]["imbalance"] == pytest.approx(max(loads) / np.mean(loads))

    # Where the block sizes are equal the mean is the formula of 1.5D, in words.
    if len(set(found[0]["sizes"])) == 1:
        words = np.mean([sum(rank["forward_bytes"].values()) / 8 for rank in found])
        p, r, n = world_size, replication, sum(found[0]["sizes"])
        assert words == pytest.approx(n * WIDTH * (1 / r - 1 / p + 2 * (r - 1) / p), abs=1)
