"""The normaliser of a batch is the float64 sum of its class weights, wherever and whenever it is computed."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fullgnn.distributed import world_of_one
from fullgnn.graph.labels import LabelFacts
from fullgnn.storage.folder import checkpoints
from fullgnn.tasks import MultiClass, MultiLabel, NodeRegression
from fullgnn.train_minibatch import run_on
from tests.cases import dense_graph, minibatch_config
from tests.sampling.training import left

WEIGHTS = {
    "balanced": ["task.class_weight=balanced"],
    "a list": ["task.class_weight=[0.1,0.7,2.3]"],
    "a list, smoothed": ["task.class_weight=[0.1,0.7,2.3]", "task.label_smoothing=0.1"],
}


def trained(path: Path, run_dir: Path, *keys: str) -> dict[str, Any]:
    cfg = minibatch_config(
        "dataset=npz", f"dataset.path={path}", f"run_dir={run_dir}", "runtime.dtype=float32", "runtime.threads=1",
        "train.epochs=3", "train.eval_every=1", "sampler.fanouts=[3,3]", "loader.batch_size=3", *keys,
    )  # fmt: skip
    with world_of_one(cfg.runtime) as world:
        run_on(world, cfg)
    return left(run_dir)


@pytest.mark.sample(3)
@pytest.mark.parametrize("weight", WEIGHTS)
def test_workers_and_a_resume_train_the_same_bits(tmp_path: Path, weight: str) -> None:
    graph = dense_graph("directed").graph()
    replace(graph, test_mask=~graph.train_mask & ~graph.val_mask).save(tmp_path / "graph.npz")
    keep = ["train.checkpoint_every=1", "train.checkpoint_every_batches=1", "train.keep_checkpoints=100"]
    keys = [tmp_path / "graph.npz", *WEIGHTS[weight]]
    whole = trained(keys[0], tmp_path / "whole", *keys[1:], *keep)
    others = [trained(keys[0], tmp_path / "workers", *keys[1:], "loader.num_workers=2", *keep)]
    for checkpoint in checkpoints(tmp_path / "whole")[:4:3]:
        others.append(trained(keys[0], tmp_path / checkpoint.name, *keys[1:], *keep, f"resume={checkpoint}"))
    for other in others:
        assert other["loss"] == whole["loss"] and torch.equal(other["model"], whole["model"])


def test_a_loss_changes_no_normaliser() -> None:
    """The sum of a batch's weights is the float64 number before and after losses of any type; an exact reference."""
    rng = np.random.default_rng(0)
    targets, values = torch.from_numpy(rng.integers(0, 3, 50)), [0.1, 0.7, 2.3]
    exact = float(sum(Fraction(values[target]) for target in targets.tolist()))
    counts = tuple(np.bincount(targets.numpy(), minlength=3).tolist())
    facts = LabelFacts(3, train_known=(50,), class_counts=counts)
    task = MultiClass(facts, class_weight=values)
    multi = LabelFacts(3, 3, binary=True, train_known=(50,) * 3, train_sum=(9,) * 3)
    several = MultiLabel(multi, class_weight=values)
    numbers = NodeRegression(LabelFacts(0, 1, train_known=(50,), train_sum=(3.3,)))
    labels = torch.from_numpy(rng.integers(0, 2, (50, 3))).to(torch.int8)
    for dtype in (torch.float32, torch.bfloat16, torch.float64, torch.float32):
        output = torch.from_numpy(rng.standard_normal((50, 3))).to(dtype)
        assert task.total(targets) == pytest.approx(exact, rel=1e-15)
        assert task.total(targets.flip(0)) == task.total(targets)
        loss = task.loss(output, targets, task.total(targets)).double()
        wanted = torch.nn.functional.cross_entropy(output, targets, torch.tensor(values, dtype=dtype), reduction="sum")
        tolerance = {torch.float64: 1e-14, torch.float32: 1e-5}.get(dtype, 0.05)
        torch.testing.assert_close(loss, wanted.double() / exact, rtol=tolerance, atol=0)
        fresh = MultiLabel(multi, class_weight=values)  # has computed no loss in another type
        assert torch.equal(several.loss(output, labels, 7.0), fresh.loss(output, labels, 7.0))
        assert several.total(labels) == 150 and numbers.total(torch.zeros(50, 1)) == 50
