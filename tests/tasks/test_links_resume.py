"""A run that finds links goes on from a checkpoint: with the same bits on the same ranks, and to rounding on others."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fullgnn.config import Config
from fullgnn.distributed import World
from fullgnn.engine import fit, set_up
from fullgnn.engine.checkpoints import Checkpoints, restore
from fullgnn.engine.step_runner import StepRunner
from fullgnn.graph import Graph
from fullgnn.storage.checkpoint import find
from fullgnn.telemetry.meter import Meter
from tests.tasks.link_training import case, gathered, graph_of


def trained(world: World, cfg: Config, graph: Graph, checkpoint: str | None) -> dict[str, Any]:
    """Losses of the epochs that this call trains, metrics and vectors; a checkpoint is written every second epoch."""
    meter = Meter(world.device)
    job = set_up(cfg, world, meter, graph if world.rank == 0 else None)
    facts, state = job.nodes, job.state
    if checkpoint is not None:
        restore(find(checkpoint) if world.rank == 0 else None, state, job.graph.block.source_id, facts.fingerprint)
    written = Checkpoints(cfg, world, job.scheme, facts) if checkpoint is None else None
    result = fit(StepRunner(job), checkpoints=written)
    losses = [record.loss for record in result.epochs]
    return {"losses": losses, "metrics": result.last, "vectors": gathered(job, job.model.embedding.weight)}


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", ["ranking, batches", "prediction"])
def test_a_run_that_goes_on(ranks, tmp_path: Path, name: str) -> None:
    kind = "bipartite" if name.startswith("ranking") else "symmetric"
    same = [f"run_dir={tmp_path}", "train.epochs=4", "train.checkpoint_every=2", "train.keep_checkpoints=2"]
    (whole, *_) = ranks(3)(trained, case(name, 1, *same), graph_of(kind), None)
    checkpoint = str(tmp_path / "checkpoints" / "epoch_000002")
    (again, *_) = ranks(3)(trained, case(name, 1, *same), graph_of(kind), checkpoint)
    assert again["losses"] == whole["losses"][2:] and again["metrics"] == whole["metrics"]
    np.testing.assert_array_equal(again["vectors"], whole["vectors"])
    other = case(name, 2, *same, "scheme.split_rows=false", "partition=random")
    (moved, *_) = ranks(4)(trained, other, graph_of(kind), checkpoint)
    np.testing.assert_allclose(moved["losses"], whole["losses"][2:], rtol=0, atol=1e-11)
    np.testing.assert_allclose(moved["vectors"], whole["vectors"], rtol=0, atol=1e-10)
