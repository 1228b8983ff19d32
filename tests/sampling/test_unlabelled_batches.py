"""A batch without a label on any rank changes nothing that is trained, and counts like any other batch."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fullgnn.config import MinibatchConfig
from fullgnn.distributed import World, world_of_one
from fullgnn.nn import set_epoch
from fullgnn.sampling.setup import set_up_sampled
from fullgnn.storage.folder import checkpoints
from fullgnn.telemetry.meter import Meter
from fullgnn.train_minibatch import run_on
from tests.cases import minibatch_config
from tests.sampling.training import left, same

OPTIMIZERS = {
    "adam": (torch.optim.Adam, ["optimizer=adam", "optimizer.weight_decay=0.01", "optimizer.lr=0.05"]),
    "sgd": (torch.optim.SGD, ["optimizer=sgd", "optimizer.momentum=0.9", "optimizer.weight_decay=0.1"]),
}
EPOCHS = 2


def case(run_dir: Path, *keys: str) -> MinibatchConfig:
    """Karate's nodes alone or in pairs: most batches have none of the few training nodes."""
    return minibatch_config(
        "dataset=karate", "model=gcn", "model.dropout=0.3", "sampler=cluster", "sampler.num_clusters=33",
        "sampler.group_size=1", "loader.batch_size=1", f"train.epochs={EPOCHS}", "runtime.dtype=float64",
        "train.clip_norm=2", "runtime.threads=1", f"run_dir={run_dir}", *keys,
    )  # fmt: skip


def reference(cfg: MinibatchConfig, optimizer_class: type[torch.optim.Optimizer]) -> tuple[list[float], torch.Tensor]:
    """The mean loss of each epoch and the last parameters, from a plain loop that leaves such batches out."""
    keys = {key: value for key, value in cfg.optimizer.items() if key not in ("_target_", "name")}
    with world_of_one(cfg.runtime) as world:
        job = set_up_sampled(cfg, world, Meter(world.device))
        model, task, loader = job.state.model, job.run.task, job.loader
        for parameter in model.parameters():
            parameter.grad = None
        optimizer, number, losses = optimizer_class(model.parameters(), **keys), 0, []
        model.train()
        for epoch in range(1, EPOCHS + 1):
            weighted, total, num_without = 0.0, 0.0, 0
            for batch in loader.epoch(epoch):
                number += 1
                num_labelled = len(batch.targets)
                if num_labelled:
                    set_epoch(model, number)
                    optimizer.zero_grad()
                    loss = task.loss(model(batch.x, batch.blocks), batch.targets, num_labelled)
                    loss.backward()
                    norm = torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).norm()
                    if norm > 2:
                        for parameter in model.parameters():
                            parameter.grad *= 2 / norm
                    optimizer.step()
                    weighted, total = weighted + num_labelled * loss.item(), total + num_labelled
                num_without += not num_labelled
            assert num_without > loader.num_batches / 2
            losses.append(weighted / total)
        return losses, torch.cat([value.detach().flatten() for value in model.state_dict().values()])


def run(world: World, cfg: MinibatchConfig) -> dict[str, Any]:
    run_on(world, cfg)
    return left(Path(cfg.run_dir)) if world.rank == 0 else {}


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_batch_without_a_label_is_no_update(ranks, tmp_path: Path, name: str) -> None:
    optimizer_class, keys = OPTIMIZERS[name]
    keep = ["train.checkpoint_every=1", "train.checkpoint_every_batches=7", "train.keep_checkpoints=99"]
    losses, parameters = reference(case(tmp_path / "reference", *keys), optimizer_class)
    cfg = case(tmp_path / "one", *keys, *keep)
    with world_of_one(cfg.runtime) as world:
        result = run(world, cfg)
        middle = checkpoints(tmp_path / "one")[2]
        again = run(world, case(tmp_path / "again", *keys, *keep, f"resume={middle}"))
    torch.testing.assert_close(torch.tensor(result["loss"]), torch.tensor(losses), rtol=1e-9, atol=0)
    torch.testing.assert_close(result["model"], parameters, rtol=1e-9, atol=1e-12)
    same(result, again, 0)
    same(result, ranks(2)(run, case(tmp_path / "two", *keys, *keep))[0], 1e-9)
