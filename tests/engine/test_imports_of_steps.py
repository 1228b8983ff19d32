"""A step imports nothing: what it calls names its modules once, at the top of a file; see ``fullgnn/room.py``."""

import ast
import builtins
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import fullgnn
from fullgnn.distributed import World
from fullgnn.engine import StepRunner, Steps, fit, set_up
from fullgnn.graph import Graph
from fullgnn.sampling.setup import set_up_sampled
from fullgnn.telemetry.meter import EpochRecord, Meter
from tests.cases import config, minibatch_config

PACKAGE = str(Path(fullgnn.__file__).parent)
RUN = ["dataset=karate", "train.epochs=3", "train.eval_every=1", "runtime.device=cpu"]
UNCACHED = ["optimizations.cache_aggregation=false"]
FULL = {
    "gcn": ["model=gcn"],
    "kernels": ["model=sage", "model.norm=batch", "kernel=tile32", "train.clip_norm=1", "optimizer=sgd"],
    "replicas": ["model=gcn", "scheme=1.5d", "scheme.replication=2", "kernel=packed", *UNCACHED],
    "edges": ["model=gat", "model.dropout=0.5"],
    "messages": ["model=gin"],
    "links": ["model=gcn", "task=link_prediction"],
    "ranking": ["model=lightgcn", "task=link_ranking", "task.channels=8"],
    "codec": ["model=gcn", "codec=scalar", *UNCACHED],
}  # fmt: skip
SAMPLED = {
    "neighbors": ["sampler.fanouts=[4,3]"],
    "edges": ["sampler.fanouts=[4,3]", "model=gat"],
    "codec": ["sampler.fanouts=[4,3]", "codec=topk", "codec.k=2", "codec.sample_nodes=20"],
}


def users_and_items() -> Graph:
    """Two users, each with pairs of two of four items."""
    user, item = np.array([0, 0, 1, 1]), np.array([2, 3, 4, 5])
    arcs = np.stack([np.concatenate([user, item]), np.concatenate([item, user])])
    return Graph.from_edge_index(arcs, num_nodes=6, num_users=2)


class ImportsOfSteps:
    """Lists the imports in functions of the package, from the end of the first epoch on."""

    def __init__(self) -> None:
        self.listed = set[str]()
        self._import = builtins.__import__

    def add_epoch(self, record: EpochRecord) -> None:
        builtins.__import__ = self._look

    def _look(self, name: str, *args: Any, **keys: Any) -> Any:
        frame: FrameType = sys._getframe(1)
        if frame.f_code.co_filename.startswith(PACKAGE) and frame.f_code.co_name != "<module>":
            self.listed.add(f"{frame.f_code.co_filename.removeprefix(PACKAGE)}: {frame.f_code.co_name} imports {name}")
        return self._import(name, *args, **keys)

    def of(self, steps: Steps) -> list[str]:
        """The imports of a training by ``steps``."""
        try:
            fit(steps, [self])
        finally:
            builtins.__import__ = self._import
        own = {line for line in self.listed if not line.split(" imports ")[1].startswith(("numpy.", "torch"))}
        return sorted(
            own
        )  # numpy and torch import modules of theirs as some of their functions, written in C, are called


def of_full_batch(world: World, overrides: list[str]) -> list[str]:
    graph = users_and_items() if world.rank == 0 and "task=link_ranking" in overrides else None
    return ImportsOfSteps().of(StepRunner(set_up(config(*RUN, *overrides), world, Meter(world.device), graph)))


def of_samples(world: World, overrides: list[str]) -> list[str]:
    return ImportsOfSteps().of(set_up_sampled(minibatch_config(*RUN, *overrides), world, Meter(world.device)))


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", FULL)
def test_a_step_imports_nothing(ranks, case: str) -> None:
    assert ranks(2)(of_full_batch, FULL[case]) == [[], []]


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", SAMPLED)
def test_a_batch_imports_nothing(ranks, case: str) -> None:
    assert ranks(2)(of_samples, SAMPLED[case]) == [[], []]


def test_kernels_name_their_compiled_loops_at_the_top() -> None:
    """Also those of GPUs, which the steps above do not call."""
    inside = [
        f"{file.name}: {function.name} imports {node.module}"
        for file in (Path(PACKAGE) / "kernels").rglob("*.py")
        for function in ast.walk(ast.parse(file.read_text()))
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.ImportFrom)
        for name in (node.module or "", *(alias.name for alias in node.names))
        if name.endswith(("_cpu", "_gpu"))
    ]
    assert not inside
