"""The first step of sampled training is rehearsed, and leaves no trace. A CPU takes the way of a GPU here."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

pytest.importorskip("hydra")

from fullgnn import train, train_minibatch
from fullgnn.config import MinibatchConfig
from fullgnn.distributed import World, world_of_one
from fullgnn.engine import fit, rehearse
from fullgnn.kernels.support import aligned, compile_time, gpu
from fullgnn.sampling.setup import set_up_sampled
from fullgnn.sampling.steps import SampledSteps
from fullgnn.telemetry.meter import Meter
from tests.cases import config, dense_graph, minibatch_config
from tests.commands import ROOT
from tests.engine.rehearsal import filled_memory
from tests.triton_device import needs_triton

pytestmark = [needs_triton, pytest.mark.filterwarnings("ignore::RuntimeWarning")]  # NumPy warns of padding

OWN = {
    "appnp": ["model.num_hops=2"],
    "gcnii": ["model.num_layers=2"],
    "mlp": ["sampler.fanouts=[]"],
    "ngcn": ["model.num_powers=2"],
}
"""Deep models are shortened, since the interpreter takes its time."""
MODELS = sorted({file.stem for file in (ROOT / "conf" / "model").glob("*.yaml")} - {"base", "lightgcn"})
"""Sampled training finds no links, for which LightGCN is made."""
RUNS = {
    **{model: ["directed", f"model={model}", *OWN.get(model, ())] for model in MODELS},
    "sage, drawn on the device": ["directed", "model=sage", "loader.sample_on_gpu=true"],
    "gcn, drawn on the device": ["weighted", "model=gcn", "loader.sample_on_gpu=true", "train.clip_norm=0.5"],
    "gat, drawn on the device": ["weighted", "model=gat", "loader.sample_on_gpu=true", "optimizer=adamw"],
    "largest": ["directed", "model=sage", "model.aggregation=max", "schedule=cosine"],
    "batch norm": ["directed", "model=gcn", "model.norm=batch", "optimizer=sgd"],
    "clusters": ["directed", "model=gcn", "sampler=cluster", "sampler.num_clusters=7", "sampler.group_size=2"],
    "layers": ["directed", "model=gcn", "sampler=layer", "sampler.sizes=[6,6]"],
    "cached": ["directed", "model=sage", "cache=degree", "cache.megabytes=0.0005"],
    "encoded": ["directed", "model=sage", "codec=bfloat16"],
    "precomputed": ["directed", "model=gcn", "model.input_dropout=0", "loader.precompute=true", "sampler.fanouts=[3]"],
}


def case(*keys: str) -> MinibatchConfig:
    common = ["runtime.dtype=float32", "seed=3", "train.epochs=1", "loader.batch_size=4"]
    if not any(key.startswith("sampler=") for key in keys):
        common.append("sampler.fanouts=[3,3]")
    return minibatch_config(*common, *keys)


def trace(world: World, cfg: MinibatchConfig, kind: str, rehearses: bool) -> dict[str, Any]:
    """What two steps leave. Memory that kernels leave out is filled as in ``engine/test_rehearsal.py``."""
    num_rehearsed = 0
    rehearse_step = SampledSteps._rehearse

    def seen(training: SampledSteps, batch: Any) -> None:
        nonlocal num_rehearsed
        num_rehearsed += 1
        if rehearses:
            rehearse_step(training, batch)

    with (
        mock.patch.object(gpu, "INTERPRETED", True),
        mock.patch.object(gpu, "AS_ON_GPU", True),
        mock.patch.object(aligned, "PADDED_DEVICES", ("cuda", "cpu")),
        mock.patch.object(SampledSteps, "_rehearse", seen),
        mock.patch.object(SampledSteps, "evaluate", lambda steps, look: {"val_accuracy": 0.5}),
        filled_memory(),
    ):
        torch.manual_seed(1)
        graph = dense_graph(kind).graph() if world.rank == 0 else None
        training = set_up_sampled(cfg, world, Meter(world.device), graph)
        result = fit(training)
        assert num_rehearsed == 1
        return {
            "losses": [epoch.loss for epoch in result.epochs],
            "bytes and counts": [(epoch.cost.bytes_received, epoch.cost.counts) for epoch in result.epochs],
            "parameters": [parameter.detach().flatten().tolist() for parameter in training.state.model.parameters()],
            "buffers": [buffer.detach().flatten().tolist() for buffer in training.state.model.buffers()],
            "random numbers": torch.get_rng_state().tolist(),
        }


def assert_no_trace(rehearsed: dict[str, Any], plain: dict[str, Any]) -> None:
    for name, value in plain.items():
        assert rehearsed[name] == value, name
    assert 0 < rehearsed["losses"][0] < float("inf")


@pytest.mark.sample(20)
@pytest.mark.parametrize("run", RUNS)
def test_a_rehearsed_step_changes_no_bit(run: str, triton_on_cpu: None) -> None:
    kind, *keys = RUNS[run]
    with world_of_one(torch.device("cpu")) as world:
        assert_no_trace(*(trace(world, case(*keys), kind, rehearses) for rehearses in (True, False)))


@pytest.mark.sample(0)
@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("run", ["sage", "gat, drawn on the device"])
def test_every_rank_rehearses(ranks, world_size: int, run: str) -> None:
    """The parts of some ranks are empty."""
    kind, *keys = RUNS[run]
    cfg = case(*keys, "loader.batch_size=2")
    rehearsed, plain = (ranks(world_size)(trace, cfg, kind, rehearses) for rehearses in (True, False))
    for of_rank, other in zip(rehearsed, plain, strict=True):
        assert_no_trace(of_rank, other)


@contextmanager
def long_rehearsal(num_threads: int) -> Iterator[None]:
    """A rehearsal that takes 1000 seconds."""
    with rehearsal(num_threads):
        yield
    compile_time.waited(1000.0)


rehearsal = rehearse.rehearsal  # before a test replaces it

LOGGED = {
    "sampled": (train_minibatch, minibatch_config, ["model=sage", "sampler.fanouts=[3,3]"]),
    "links": (train, config, ["task=link_prediction", "model=lightgcn", "task.channels=4"]),
    "nodes": (train, config, ["model=mlp"]),
}


@pytest.mark.parametrize("training", LOGGED)
def test_the_first_epoch_says_how_long_it_compiled(
    training: str, triton_on_cpu: None, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch
) -> None:
    module, make, keys = LOGGED[training]
    monkeypatch.setattr(logging.getLogger("fullgnn"), "propagate", True)
    monkeypatch.setattr(rehearse, "rehearsal", long_rehearsal)
    caplog.set_level(logging.INFO, "fullgnn")
    cfg = make("dataset=karate", "kernel=csr", "train.epochs=1", f"run_dir={tmp_path / 'run'}", *keys)
    with world_of_one(torch.device("cpu")) as world:
        module.run_on(world, cfg)
    told = [line for line in caplog.messages if line.startswith("compiling kernels")]
    assert told[0] == "compiling kernels for this machine, which takes some seconds ..." and len(told) == 2
    assert re.fullmatch(r"compiling kernels took 10\d\d\.\d s of the first epoch; later runs .*", told[1])
