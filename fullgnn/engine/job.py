"""Set up a run before its first epoch: load the graph, build the model, distribute the graph, compute A @ H0."""

import logging
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from fullgnn.codecs import NOTHING, FirstLayer, State, Told, asks_for_first_layer, build_codec
from fullgnn.config import Config, OptimizationConfig, build
from fullgnn.distributed import World, broadcast_object, from_rank0
from fullgnn.distributed.collectives import NOT_WITHOUT_OTHERS
from fullgnn.engine.aggregate import Kept, aggregate_features, cached_aggregation, offloads
from fullgnn.engine.blocks import input_powers, input_propagation, needs_of
from fullgnn.engine.checks import check_goal, check_model_fits
from fullgnn.engine.deterministic import check_deterministic
from fullgnn.engine.kept_names import KeptNames, kept_names
from fullgnn.engine.optimizations import applicable
from fullgnn.engine.sharded import place_rows
from fullgnn.errors import ConfigError, DataError, UnsupportedError
from fullgnn.graph import Graph
from fullgnn.kernels.dense.sparse_rows import SparseRows
from fullgnn.kernels.spmm import AutoKernel
from fullgnn.kernels.support.aligned import to_aligned
from fullgnn.nn import set_spmm_order
from fullgnn.prepare.facts import GraphFacts, NodeFacts
from fullgnn.prepare.prepared import PreparedGraph, needed_row_ratio
from fullgnn.prepare.source import prepared_graph
from fullgnn.prepare.statistics import Statistics, statistics_of
from fullgnn.schemes.base import Needs, Scheme, ShardedGraph
from fullgnn.storage.cache import Cache
from fullgnn.tasks import LinkTask, Task, build_task, takes_links
from fullgnn.telemetry.meter import Meter

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Learner:
    """The model of a run and its task, with what they need of the graph; equal on every rank."""

    model: torch.nn.Module
    task: Task
    optimizations: OptimizationConfig  # those that the model supports
    needs: Needs
    measures: bool = True  # whether the graph has labels of the task; False: its metrics cannot be measured


@dataclass(frozen=True)
class Preparation:
    """What every rank knows of the graph of a job."""

    facts: GraphFacts
    key: str  # of the prepared graph; empty: nothing is cached
    folder: Path | None  # that holds the prepared graph, in the cache
    needed_row_ratio: float | None  # see ``RunRecord``
    statistics: Statistics | None = None  # None: not counted
    codec_state: State | None = None  # what the codec of the features has learnt, on rank 0; None: nothing
    names: KeptNames | None = None  # of the nodes, on rank 0, where predictions are written; None: they have none


@dataclass(frozen=True)
class Job:
    """The model and the graph of a run, ready on every rank."""

    model: torch.nn.Module
    graph: ShardedGraph
    task: Task
    scheme: Scheme
    optimizations: OptimizationConfig  # those that the model supports
    preparation: Preparation | None = None  # None: a tool has made the graph itself


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
    """Prepare ``cfg.dataset`` (or ``graph``, on rank 0), build the model, distribute the graph, and make the input.

    Optimizations that the model does not support are disabled, and this is logged. Results that an earlier run stored
    in ``runtime.cache_dir`` are not computed again.

    Raises:
        FullGNNError: a user error, the same on every rank.
    """
    with prepared_graph(cfg, world, scheme.num_parts, graph=graph, told=told(cfg)) as prepared:
        learner = make_learner(cfg, prepared.facts.nodes, world.device)
        job = distribute(cfg, world, scheme, learner, prepared)
    return with_input(job, cfg, world)


def make_learner(cfg: Config, facts: NodeFacts, device: torch.device) -> Learner:
    """Build the model and the task of ``cfg`` for a graph with these ``facts``.

    Raises:
        ConfigError, DataError: the graph lacks what the task or the model needs; the same on every rank.
    """
    try:
        task = build_task(cfg.task, facts.labels, facts.links)
    except DataError as error:
        raise DataError(f"dataset {facts.name}: {error}") from error
    check_model_fits(cfg, facts.num_features, 0, device)
    model = build_model(cfg, facts.num_features, task.num_outputs, device)
    check_goal(cfg, model)
    pairs = isinstance(task, LinkTask)
    codec, dtype = build_codec(cfg.codec), getattr(torch, cfg.runtime.dtype)
    optimizations = applicable(cfg.optimizations, model, pairs, None if codec else facts)
    sparse = optimizations.sparse_features is True
    needs = replace(needs_of(model, optimizations), pairs=pairs, dtype=dtype, codec=codec, sparse=sparse)
    return Learner(model, task, optimizations, needs)


def told(cfg: Config) -> Told:
    """What the codec of ``cfg`` is told: if it asks for that, what the first layer of the model reads."""
    if not asks_for_first_layer(cfg.codec):
        return NOTHING
    model = build_model(cfg, 1, 1, torch.device("cpu"))
    propagation = input_propagation(model)
    return NOTHING if propagation is None else Told(first_layer=FirstLayer(propagation, input_powers(model)))


def with_supported_optimizations(cfg: Config) -> Config:
    """Return ``cfg`` with only the optimizations that its model supports; the planner uses it, without a graph.

    Raises:
        ConfigError: a size or a rate of the model is out of range.
    """
    model, every_row = build_model(cfg, 1, 1, torch.device("cpu")), takes_links(cfg.task)
    return replace(cfg, optimizations=applicable(cfg.optimizations, model, every_row))


def may_multiply_sparse(cfg: Config) -> bool:
    """Whether a run of ``cfg``, as the user configures it, multiplies features of which few are not 0 as a sparse
    matrix."""
    if cfg.optimizations.sparse_features is False or build_codec(cfg.codec):
        return False
    return bool(getattr(build_model(cfg, 1, 1, torch.device("cpu")), "reads_sparse_rows", False))


def distribute(cfg: Config, world: World, scheme: Scheme, learner: Learner, prepared: PreparedGraph) -> Job:
    """Read this rank's part of a prepared graph, and build its blocks. Every rank calls it.

    The job keeps no reference to ``prepared``.

    Returns:
        a job whose input is still the features.
    """
    model, task, optimizations, needs = learner.model, learner.task, learner.optimizations, learner.needs
    nodes = prepared.facts.nodes
    check_model_fits(cfg, nodes.num_features, prepared.facts.num_nodes // world.size, world.device)
    sharded = scheme.shard(prepared, needs)
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
    statistics = None
    if cfg.train.statistics:
        statistics = broadcast_object(from_rank0(lambda: statistics_of(prepared, cfg.self_loops)))
    folder, ratio = prepared.folder if prepared.key else None, needed_row_ratio(prepared)
    codec_state = prepared.part(0).codec_state if world.rank == 0 else None
    names = from_rank0(lambda: kept_names(prepared)) if cfg.train.save_predictions and not world.dry else None
    about = Preparation(prepared.facts, prepared.key, folder, ratio, statistics, codec_state, names)
    return Job(model, sharded, task, scheme, optimizations, about)


def with_input(job: Job, cfg: Config, world: World) -> Job:
    """The last part of ``set_up``: replace the features of the graph by the model's input. Every rank calls it.

    Returns:
        the job with that input, whose ``optimizations.offload`` is now ``always`` or ``never``.
    """
    keeps = job.optimizations.cache_aggregation and not world.dry  # a dry run does not compute the true A @ H0
    cache = Cache(cfg.runtime.cache_dir)
    key = aggregation_key(cfg, job.preparation.key, cache) if keeps and job.preparation is not None else ""
    graph, optimizations = make_input(job.model, job.graph, job.optimizations, world, cache, key)
    return replace(job, graph=graph, optimizations=optimizations)


def aggregation_key(cfg: Config, prepared_key: str, cache: Cache) -> str:
    """Key of A @ H0 in the ``cache``: that of the prepared graph, and what scheme and kernel multiply, whose results
    differ in the last bits. Empty: nothing is cached."""
    if not prepared_key:
        return ""
    return cache.key(
        prepared=prepared_key,
        normalization=cfg.normalization,
        self_loops=cfg.self_loops,
        dtype=cfg.runtime.dtype,
        fold_normalization=cfg.optimizations.fold_normalization,
        scheme=cfg.scheme,
        kernel=cfg.kernel,
    )


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
    if isinstance(graph.features, SparseRows):
        return replace(graph, coded=None), optimizations
    assert isinstance(graph.features, torch.Tensor)
    features = to_aligned(graph.features, world.device) if graph.num_features else graph.features.to(world.device)
    features = features if optimizations.skip_input_gradient else features.requires_grad_()
    return replace(graph, features=features, coded=None), optimizations


def build_model(cfg: Config, in_channels: int, out_channels: int, device: torch.device) -> torch.nn.Module:
    """Build the model with equal parameters on every rank: they are drawn on the CPU and depend only on the seed."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, cfg.runtime.dtype))
    try:
        model = build(cfg.model, in_channels=in_channels, out_channels=out_channels, seed=cfg.seed)
    finally:
        torch.set_default_dtype(default)
    return model.to(device)
