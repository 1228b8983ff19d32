"""Launches, collectives and host waits of a training step, a sampled batch and an evaluation, on a fake GPU."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

import torch

from fullgnn.distributed import World
from fullgnn.engine import set_up
from fullgnn.engine.passes import evaluate
from fullgnn.engine.step_runner import StepRunner
from fullgnn.sampling.setup import set_up_sampled
from fullgnn.telemetry.meter import Meter
from tests.cases import layout_overrides, minibatch_config
from tests.gpu_code.fake_cuda import FakeCuda
from tests.gpu_code.recorded_training import gpu_case, on_fake_gpu
from tests.tasks import link_training as links

DRAWN = "loader.sample_on_gpu=true"
WARM = 2
"""Steps before the one that is counted: the first allocates, tunes and builds indices."""


@dataclass(frozen=True)
class Counts:
    """What one part of a training does on one rank."""

    kernels: int  # launches of Triton kernels
    operators: int  # operators of torch that are no view and no allocation: at least one launch each
    collectives: int  # each message between two ranks counts as well
    waits: dict[str, int]  # how often the host waits for the GPU, by the name of the call

    @classmethod
    def of(cls, cuda: FakeCuda, call: Callable[[], object]) -> "Counts":
        before, waits = Counter(cuda.launches), Counter(cuda.waits)
        call()
        launches, waits = cuda.launches - before, cuda.waits - waits
        return cls(launches["kernel"], launches["operator"], launches["collective"], dict(waits))


def of_nodes(world: World, cuda: FakeCuda, model: str) -> dict[str, Counts]:
    """The counts of ``model`` for node classification on the whole graph."""
    cfg, meter = gpu_case(1, f"model={model}"), Meter(world.device)
    job = set_up(cfg, world, meter)
    return _of_epochs(cuda, StepRunner(job))


def of_links(world: World, cuda: FakeCuda) -> dict[str, Counts]:
    """The counts of LightGCN, whose epoch has one step here."""
    kind, overrides = links.CASES["ranking"]
    cfg, meter = links.case("ranking", 1, *overrides, "kernel=csr", "runtime.dtype=float32"), Meter(world.device)
    graph = links.graph_of(kind) if world.rank == 0 else None
    job = set_up(cfg, world, meter, graph)
    return _of_epochs(cuda, StepRunner(job))


def of_batches(world: World, cuda: FakeCuda, model: str, *overrides: str) -> dict[str, Counts]:
    """The counts of ``model`` on sampled batches of two hops; a step includes the batch that it reads."""
    cfg = minibatch_config(
        "dataset=karate", *layout_overrides(1), f"model={model}", "sampler.fanouts=[3,3]", "loader.batch_size=4",
        "kernel=csr", "runtime.dtype=float32", *overrides,
    )  # fmt: skip
    job = set_up_sampled(cfg, world, Meter(world.device))
    batches = chain.from_iterable(job.loader.epoch(epoch) for epoch in range(1, WARM + 2))

    def step() -> None:
        job.step(next(batches))

    for _ in range(WARM):
        step()
    counts = Counts.of(cuda, step)
    if DRAWN in overrides:  # the evaluation reads the full graph, whatever draws
        return {"step": counts}
    job.evaluate()
    return {"step": counts, "evaluation": Counts.of(cuda, job.evaluate)}


def _of_epochs(cuda: FakeCuda, runner: StepRunner) -> dict[str, Counts]:
    for epoch in range(1, WARM + 1):
        runner(epoch)
    counts = Counts.of(cuda, lambda: runner(WARM + 1))
    evaluate(runner.run)
    return {"step": counts, "evaluation": Counts.of(cuda, lambda: evaluate(runner.run))}


CASES: dict[str, Callable[[World, FakeCuda], dict[str, Counts]]] = {
    "GCN": lambda world, cuda: of_nodes(world, cuda, "gcn"),
    "GAT": lambda world, cuda: of_nodes(world, cuda, "gat"),
    "sampled SAGE": lambda world, cuda: of_batches(world, cuda, "sage"),
    "SAGE, drawn on the GPU": lambda world, cuda: of_batches(world, cuda, "sage", DRAWN),
    "SAGE, drawn and cached": lambda world, cuda: of_batches(world, cuda, "sage", DRAWN, "cache=all"),
    "GCN, drawn and cached": lambda world, cuda: of_batches(world, cuda, "gcn", DRAWN, "cache=all"),
    "LightGCN": of_links,
}


def counts_of(world: World, case: str) -> dict[str, Counts]:
    """The counts of this rank, for a case of ``CASES``. Every rank calls it."""
    with on_fake_gpu(world) as (world, cuda):
        torch.manual_seed(0)
        return CASES[case](world, cuda)
