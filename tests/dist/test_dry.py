"""A dry run holds, multiplies and receives what the rank that it plays does in a real job."""

import pytest

from fullgnn.config import Config
from fullgnn.dist import World, dry_world
from fullgnn.engine import fit
from tests.cases import LAYOUTS, config, layout_overrides
from tests.schemes.training import prepare

CHOICES = {
    "default": [],
    "needed_rows": ["scheme.exchange=needed_rows", "work.loss_rows_only=true"],
    "published": ["scheme.stage_order=broadcast", "scheme.exchange=broadcast", "scheme.split_rows=false"],
    "broadcast": ["scheme.stage_order=broadcast", "scheme.exchange=auto", "model.input_dropout=0"],
}


def cost(world: World, cfg: Config, kind: str) -> dict:
    """What one rank's second epoch costs."""
    meter, scheme, job = prepare(world, cfg, kind)
    result = fit(job.model, job.graph, scheme, cfg.train, meter)
    last = result.epochs[-1].cost
    return {
        "bytes": last.bytes_received,
        "counts": last.counts,
        "peak": result.peak_tensor_bytes,
        "nnz": job.graph.adj.multiply.nnz,
        "node_id": job.graph.adj.node_id.tolist(),
    }


@pytest.mark.parametrize(("world_size", "replication"), LAYOUTS)
@pytest.mark.parametrize("choice", CHOICES)
def test_a_dry_run_costs_what_the_rank_does(ranks, world_size: int, replication: int, choice: str) -> None:
    kind = "symmetric" if choice == "needed_rows" else "directed"
    cfg = config(*layout_overrides(replication), "train.epochs=2", "scheme.shared_memory=false", *CHOICES[choice])
    real = ranks(world_size)(cost, cfg, kind)
    for rank, expected in enumerate(real):
        with dry_world(cfg.runtime, rank, world_size) as world:
            assert cost(world, cfg, kind) == expected
