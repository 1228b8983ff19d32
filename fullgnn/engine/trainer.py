"""Set up a training up to its first epoch, for tools that run epochs one at a time."""

from dataclasses import replace

from fullgnn.config import Config
from fullgnn.distributed import World
from fullgnn.engine.cuda_graph import replay_for
from fullgnn.engine.job import Job, distribute, make_learner, make_scheme, set_up, with_input
from fullgnn.engine.prepare import NodeFacts, Prepared
from fullgnn.engine.state import TrainState
from fullgnn.engine.step_runner import StepRunner
from fullgnn.graph import Graph
from fullgnn.telemetry.meter import Meter


def make_training(
    cfg: Config,
    world: World,
    graph: Graph | None = None,
    prepared: Prepared | None = None,
) -> tuple[Job, StepRunner, Meter]:
    """Set up everything that a run of ``cfg`` needs before its first epoch. Called on every rank of ``world``.

    Args:
        graph: the whole graph on rank 0, which replaces ``cfg.dataset``; None elsewhere.
        prepared: the result of ``prepare`` for ``cfg``, only on one rank or in a dry run; ``graph`` is then ignored.

    Returns:
        the job; the runner, which launches epoch i (from 1) when called with i; and the meter that counts its cost.

    Raises:
        FullGNNError: a user error, the same on every rank.
    """
    meter = Meter(world.device)
    scheme = make_scheme(cfg, world, meter)
    if prepared is None:
        job = set_up(cfg, world, scheme, graph)
    else:
        pairs = prepared[0].pairs
        facts = replace(NodeFacts.of(prepared[0].graph), links=None if pairs is None else pairs.facts)
        learner = make_learner(cfg, facts, world.device)
        job = with_input(distribute(cfg, world, scheme, learner, prepared), cfg, world)
    replay = replay_for(cfg.runtime.cuda_graph, world)
    return job, StepRunner(TrainState(job.model, cfg), job, meter, replay), meter
