"""Set up a run before its first epoch: load the graph, build the model, distribute the graph, compute A @ H0."""

import logging
import time
from dataclasses import dataclass, replace

import torch

from fullgnn.config import Config, OptimizationConfig, build
from fullgnn.distributed import World, broadcast_object, from_rank0
from fullgnn.distributed.collectives import NOT_WITHOUT_OTHERS
from fullgnn.engine.aggregate import Kept, aggregate_features, cached_aggregation, offloads
from fullgnn.engine.blocks import input_powers, input_propagation, needs_of
from fullgnn.engine.deterministic import check_deterministic
from fullgnn.engine.optimizations import applicable
from fullgnn.engine.prepare import NodeFacts, Preparation, Prepared, check_goal, prepare
from fullgnn.engine.sharded import place_rows
from fullgnn.errors import ConfigError, DataError, UnsupportedError
from fullgnn.graph import Graph, load_dataset
from fullgnn.kernels.spmm import AutoKernel
from fullgnn.kernels.support.aligned import to_aligned
from fullgnn.nn import set_spmm_order
from fullgnn.reorder.structure import Structure
from fullgnn.schemes.base import Needs, Scheme, ShardedGraph
from fullgnn.storage.cache import Cache
from fullgnn.tasks import LinkTask, Task, build_task, held_out, takes_links
from fullgnn.telemetry.meter import Meter

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Learner:
    """The model of a run and its task, with what they need of the graph; equal on every rank."""

    model: torch.nn.Module
    task: Task
    optimizations: OptimizationConfig  # those that the model supports
    needs: Needs
    load_time_s: float
    measures: bool = True  # whether the graph has labels of the task; False: its metrics cannot be measured


@dataclass(frozen=True)
class Job:
    """The model and the graph of a run, ready on every rank."""

    model: torch.nn.Module
    graph: ShardedGraph
    task: Task
    scheme: Scheme
    optimizations: OptimizationConfig  # those that the model supports
    preparation: Preparation | None = None  # None: a tool has made the graph itself
    structure: Structure | None = None  # on rank 0; None elsewhere


def make_scheme(cfg: Config, world: World, meter: Meter) -> Scheme:
    """Build the scheme of ``cfg`` on this rank, with its kernel.

    Raises:
        ConfigError: ``runtime.deterministic`` with a choice that is not deterministic; the same on every rank.
    """
    check_deterministic(cfg, world.device)
    kernel = build(cfg.kernel)
    if isinstance(kernel, AutoKernel):
        kernel.remember_in(Cache(cfg.runtime.cache_dir))
        if cfg.runtime.deterministic:
            kernel.choose_by_rule()
    return build(cfg.scheme, world=world, kernel=kernel, meter=meter)


def set_up(cfg: Config, world: World, scheme: Scheme, graph: Graph | None = None) -> Job:
    """Load ``cfg.dataset`` (or take ``graph``) on rank 0, build the model, distribute the graph, and make the input.

    Optimizations that the model does not support are disabled, and this is logged. Results that an earlier run stored
    in ``runtime.cache_dir`` are not computed again.

    Raises:
        FullGNNError: a user error, the same on every rank.
    """
    graph, facts = load_on_rank0(cfg, graph)
    learner = make_learner(cfg, facts, world.device)
    prepared = prepare_on_rank0(cfg, scheme, learner.needs, graph)
    job = distribute(cfg, world, scheme, learner, prepared)
    del prepared, graph
    return with_input(job, cfg, world)


def load_on_rank0(cfg: Config, graph: Graph | None = None) -> tuple[Graph | None, NodeFacts]:
    """Load ``cfg.dataset`` on rank 0, unless ``graph`` is given there, and take out what the task holds out.

    Returns:
        the graph on rank 0, None elsewhere; and what the model and the task need to know of it, on every rank.
    """

    def load() -> tuple[Graph, NodeFacts]:
        Cache(cfg.runtime.cache_dir).check()
        begin = time.perf_counter()
        loaded = held_out(cfg.task, load_dataset(cfg.dataset) if graph is None else graph)
        facts = NodeFacts.of(loaded, with_links=takes_links(cfg.task))
        return loaded, replace(facts, load_time_s=time.perf_counter() - begin)

    found = from_rank0(load)
    facts = broadcast_object(found[1] if found else None)
    return (found[0] if found else None), facts


def make_learner(cfg: Config, facts: NodeFacts, device: torch.device) -> Learner:
    """Build the model and the task of ``cfg`` for a graph with these ``facts``.

    Raises:
        ConfigError, DataError: the graph lacks what the task or the model needs; the same on every rank.
    """
    try:
        task = build_task(cfg.task, facts.labels, facts.links)
    except DataError as error:
        raise DataError(f"dataset {facts.name}: {error}") from error
    model = build_model(cfg, facts.num_features, task.num_outputs, device)
    check_goal(cfg, model)
    pairs = isinstance(task, LinkTask)
    optimizations = applicable(cfg.optimizations, model, every_row=pairs)
    needs = replace(needs_of(model, optimizations), pairs=pairs)
    return Learner(model, task, optimizations, needs, facts.load_time_s)


def prepare_on_rank0(cfg: Config, scheme: Scheme, needs: Needs, graph: Graph | None) -> Prepared | None:
    """Partition and order the ``graph`` of rank 0. Returns None on the other ranks."""

    def prepared() -> Prepared:
        assert graph is not None  # rank 0 has it
        return prepare(cfg, needs, scheme.num_parts, graph, Cache(cfg.runtime.cache_dir))

    return from_rank0(prepared)


def prepare_alone(cfg: Config, num_parts: int, graph: Graph | None = None, cache: Cache | None = None) -> Prepared:
    """Load (unless ``graph`` is given) and prepare a graph in this process, which needs no job; for the planner.

    Raises:
        FullGNNError: a user error.
    """
    graph = held_out(cfg.task, load_dataset(cfg.dataset) if graph is None else graph)
    needs = needs_of(build_model(cfg, 1, 1, torch.device("cpu")), cfg.optimizations)
    return prepare(cfg, replace(needs, pairs=takes_links(cfg.task)), num_parts, graph, cache)


def with_supported_optimizations(cfg: Config) -> Config:
    """Return ``cfg`` with only the optimizations that its model supports; the planner uses it, without a graph.

    Raises:
        ConfigError: a size or a rate of the model is out of range.
    """
    model, every_row = build_model(cfg, 1, 1, torch.device("cpu")), takes_links(cfg.task)
    return replace(cfg, optimizations=applicable(cfg.optimizations, model, every_row))


def distribute(cfg: Config, world: World, scheme: Scheme, learner: Learner, prepared: Prepared | None) -> Job:
    """Distribute the graph that rank 0 has prepared.

    Args:
        prepared: what ``prepare_on_rank0`` returned. The job keeps no reference to it, so that the caller can free the
            whole graph.

    Returns:
        a job whose input is still the features.
    """
    preparation = broadcast_object(prepared[1] if prepared else None)
    preparation = replace(preparation, prepare_time_s=learner.load_time_s + preparation.prepare_time_s)
    model, task, optimizations, needs = learner.model, learner.task, learner.optimizations, learner.needs
    sharded = scheme.shard(prepared[0] if prepared else None, needs)
    if needs.pairs and (sharded.pairs is None or sharded.block.directory is None):
        raise ConfigError(
            f"task={cfg.task['name']} reads rows of other ranks by their ids, and scheme={cfg.scheme['name']}"
            " multiplies only: choose scheme=1d or scheme=1.5d"
        )
    if needs.pairs and world.dry:
        raise UnsupportedError(f"task={cfg.task['name']}: {NOT_WITHOUT_OTHERS}")
    if learner.measures:
        sharded = replace(sharded, labels=task.targets(sharded.labels))
    if needs.edges and sharded.block.movements is None:
        raise ConfigError(
            f"model={cfg.model['name']} reads the edges of the graph, and scheme={cfg.scheme['name']} multiplies only:"
            " choose scheme=1d or scheme=1.5d"
        )
    if optimizations.loss_rows_only and sharded.loss_block is None:
        log.info("optimizations.loss_rows_only is disabled: scheme=%s computes all rows", cfg.scheme["name"])
        optimizations = replace(optimizations, loss_rows_only=False)
    set_spmm_order(model, optimizations.spmm_order)
    place_rows(model, sharded.block.source_id)
    structure = prepared[0].structure if prepared else None
    return Job(model, sharded, task, scheme, optimizations, preparation, structure)


def with_input(job: Job, cfg: Config, world: World) -> Job:
    """The last part of ``set_up``: replace the features of the graph by the model's input. Every rank calls it.

    Returns:
        the job with that input, whose ``optimizations.offload`` is now ``always`` or ``never``.
    """
    keeps = job.optimizations.cache_aggregation and not world.dry  # a dry run does not compute the true A @ H0
    key = job.preparation.aggregation_key if keeps and job.preparation is not None else ""
    cache = Cache(cfg.runtime.cache_dir)
    graph, optimizations = make_input(job.model, job.graph, job.optimizations, world, cache, key)
    return replace(job, graph=graph, optimizations=optimizations)


def make_input(
    model: torch.nn.Module,
    graph: ShardedGraph,
    optimizations: OptimizationConfig,
    world: World,
    cache: Cache | None = None,
    aggregation_key: str = "",
) -> tuple[ShardedGraph, OptimizationConfig]:
    """Replace the features of ``graph`` by the input of ``model``: the features on the device, or A @ H0, or several
    powers A^k @ H0, on device or host.

    Every rank calls it.

    Args:
        aggregation_key: key of A @ H0 in the ``cache``; empty: A @ H0 is not stored.

    Returns:
        the graph with that input, and ``optimizations`` whose ``offload`` is now ``always`` or ``never``.
    """
    propagation = input_propagation(model) if optimizations.cache_aggregation else None
    kept = None if propagation is None else Kept(propagation, input_powers(model))
    offload = offloads(optimizations.offload, graph, world, 1 if kept is None else len(kept.powers))
    optimizations = replace(optimizations, offload="always" if offload else "never")
    if kept is not None:
        if cache is not None and aggregation_key:
            return cached_aggregation(graph, kept, world, offload, cache, aggregation_key), optimizations
        return aggregate_features(graph, kept, world.device, offload), optimizations
    assert isinstance(graph.features, torch.Tensor)
    features = to_aligned(graph.features, world.device) if graph.num_features else graph.features.to(world.device)
    return replace(
        graph, features=features if optimizations.skip_input_gradient else features.requires_grad_()
    ), optimizations


def build_model(cfg: Config, in_channels: int, out_channels: int, device: torch.device) -> torch.nn.Module:
    """Build the model with equal parameters on every rank: they are drawn on the CPU and depend only on the seed."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, cfg.runtime.dtype))
    try:
        model = build(cfg.model, in_channels=in_channels, out_channels=out_channels, seed=cfg.seed)
    finally:
        torch.set_default_dtype(default)
    return model.to(device)
