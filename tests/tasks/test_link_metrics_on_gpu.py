"""Metrics of links as a GPU computes them: those of a CPU, in large pieces, without waiting for each piece."""

from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from fullgnn.distributed import world_of_one
from fullgnn.engine import set_up
from fullgnn.kernels.support import gpu
from fullgnn.tasks import ranking
from fullgnn.telemetry.meter import Meter
from tests.cases import config
from tests.gpu_code.host_waits import HostWaits
from tests.tasks.draws import bipartite

CPU = torch.device("cpu")
NAMES = "[recall@1,ndcg@1,recall@3,ndcg@3,recall@20,ndcg@20]"


def outputs(num_nodes: int) -> list[torch.Tensor]:
    """Different scores, many ties, ties alone, and scores that are not finite."""
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal((num_nodes, 4)), rng.integers(-1, 2, (num_nodes, 4)).astype(float)]
    arrays += [np.zeros((num_nodes, 4)), rng.standard_normal((num_nodes, 4))]
    arrays[3][3], arrays[3][40], arrays[3][41] = np.nan, np.inf, -np.inf
    return [torch.from_numpy(array) for array in arrays]


@pytest.mark.parametrize("users", [1 << 12, 7])
@pytest.mark.parametrize("task", ["link_ranking", "link_prediction"])
def test_metrics_of_a_gpu_are_those_of_a_cpu(monkeypatch: pytest.MonkeyPatch, task: str, users: int) -> None:
    graph = bipartite(30, 70, 0.3)
    keys = [f"task.metrics={NAMES}", "task.val_fraction=0.1"] if task == "link_ranking" else []
    cfg = config(f"task={task}", "model=lightgcn", "task.channels=4", "runtime.dtype=float64", *keys)
    monkeypatch.setattr(ranking, "USERS_ON_GPU", users)
    monkeypatch.setattr(ranking, "ITEMS_AT_ONCE", 48)
    with world_of_one(cfg.runtime) as world:
        job: Any = set_up(cfg, world, Meter(CPU), graph)
        job.task._chunks = ranking.Chunks(job.task.links.candidates)
        for number, output in enumerate(outputs(100)):
            wanted = job.task.measure(output, job.graph, job.scheme)
            with mock.patch.object(gpu, "AS_ON_GPU", True), HostWaits([output]) as waits:
                metrics = job.task.measure(output, job.graph, job.scheme)
            assert waits.counts == {"tolist": 1}  # the sums of all metrics
            assert metrics.keys() == wanted.keys()
            for name, value in wanted.items():
                assert metrics[name] == (None if value is None else pytest.approx(value, rel=0, abs=1e-12)), name
            assert number > 1 or any(value not in (None, 0) for value in metrics.values())
