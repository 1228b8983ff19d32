"""Set up a training up to its first epoch, for tools that run epochs one at a time."""

from fullgnn.config import Config
from fullgnn.distributed import World
from fullgnn.engine.cuda_graph import replay_for
from fullgnn.engine.job import Job, distribute, make_learner, make_scheme, set_up, with_input
from fullgnn.engine.state import TrainState
from fullgnn.engine.step_runner import StepRunner
from fullgnn.graph import Graph
from fullgnn.prepare.prepared import PreparedGraph
from fullgnn.telemetry.meter import Meter


def make_training(
    cfg: Config,
    world: World,
    graph: Graph | None = None,
    prepared: PreparedGraph | None = None,
) -> tuple[Job, StepRunner, Meter]:
    """Set up everything that a run of ``cfg`` needs before its first epoch. Called on every rank of ``world``.

    Args:
        graph: the whole graph on rank 0, which replaces ``cfg.dataset``; None elsewhere.
        prepared: the graph of ``cfg`` as this rank reads it; ``graph`` is then ignored.

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
        learner = make_learner(cfg, prepared.facts.nodes, world.device)
        job = with_input(distribute(cfg, world, scheme, learner, prepared), cfg, world)
    replay = replay_for(cfg.runtime.cuda_graph, world)
    return job, StepRunner(TrainState(job.model, cfg), job, meter, replay), meter
