"""One run on one rank, in the stages in which it is set up.

    decide         what the configuration leaves open: the scheme, and how rows arrive (``Planner``)
    learn          the model and its task, and what they ask for, once it is known what the graph is
    distribute     this rank's part of the graph, in the blocks that the model reads
    prepare_input  the features on the device, or A @ H0
    state          parameters, gradients, optimizer and progress, where the run trains

``set_up`` goes through these stages. Trainings, predictions, benchmarks and tests call it.
"""

import logging
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from fullgnn.codecs import State, build_codec
from fullgnn.config import Config, OptimizationConfig, build, is_encoded
from fullgnn.distributed import World, broadcast_object, from_rank0
from fullgnn.distributed.collectives import NOT_WITHOUT_OTHERS
from fullgnn.engine.checks import applicable, check_model_fits
from fullgnn.engine.state import TrainState, place_rows
from fullgnn.errors import DataError, UnsupportedError
from fullgnn.graph import Graph
from fullgnn.kernels.support.aligned import to_aligned
from fullgnn.nn import set_spmm_order
from fullgnn.nn.contract import block_request, contract_of, trial_model
from fullgnn.partition.facts import GraphFacts, NodeFacts
from fullgnn.partition.prepared import PreparedGraph, needed_row_ratio
from fullgnn.prepare.process import PreparationWorker
from fullgnn.prepare.source import Preparation, codec_context, prepared_graph
from fullgnn.schemes.base import BlockRequest, Scheme, ShardedGraph, check_offers
from fullgnn.storage.cache import Cache
from fullgnn.tasks import Task, build_task, log_default_metric, takes_links
from fullgnn.telemetry.meter import Meter

if TYPE_CHECKING:
    from fullgnn.engine.kept_names import KeptNames
    from fullgnn.prepare.statistics import Statistics

log = logging.getLogger(__name__)


COSTS = "fullgnn.costs.auto.CostPlanner"
"""The planner that predicts what each choice costs."""


class Planner:
    """Decides what a configuration leaves open: here nothing. Every rank calls its methods, and gets equal results."""

    def with_scheme(self, cfg: Config, world: World, worker: PreparationWorker) -> Config:
        """``cfg`` with a scheme.

        Args:
            worker: on rank 0, where the whole graph is looked at.
        """
        return cfg

    def with_fetch(self, run: "Run", prepared: PreparedGraph) -> Config:
        """The configuration of ``run``, which has no scheme yet, with how rows arrive, see ``SchemeOptions.fetch``.

        Raises:
            ConfigError: a GPU has too little memory for the run; the same on every rank.
        """
        return run.cfg

    def predicted(self, run: "Run", prepared: PreparedGraph) -> dict[str, Any] | None:
        """``RunRecord.predicted`` of a run, from its own blocks; None: nothing was predicted."""
        return None


def planner_of(cfg: Config, world: World) -> Planner:
    """The planner of a run. That of ``costs/`` is loaded only where something is open: with ``scheme=auto``, and on
    GPUs, where it decides how rows arrive."""
    is_open = cfg.scheme["name"] == "auto" or world.device.type == "cuda"
    return build({"_target_": COSTS}) if is_open else Planner()


@dataclass(eq=False)
class Run:
    """A run on this rank. Each stage sets the fields below its comment."""

    # decide
    cfg: Config
    world: World
    meter: Meter
    # learn: equal on every rank
    nodes: NodeFacts
    model: torch.nn.Module
    task: Task
    optimizations: OptimizationConfig
    """The optimizations that the model and the scheme support."""
    request: BlockRequest
    # distribute
    scheme: Scheme = field(init=False)
    graph: ShardedGraph = field(init=False)
    """This rank's part. Its ``features`` are the model's input from the next stage on."""
    facts: GraphFacts = field(init=False)
    """What every rank knows of the whole graph."""
    prepared_key: str = field(init=False)
    """Key of the prepared graph in the cache; empty: nothing is cached."""
    prepared_folder: Path | None = field(init=False)
    """Folder from which this rank reads a prepared graph that is in the cache; None: nothing is cached."""
    needed_row_ratio: float | None = field(init=False)
    """See ``RunRecord``."""
    statistics: "Statistics | None" = field(init=False)
    """None: not counted."""
    codec_state: State | None = field(init=False)
    """What the codec of the features has learnt, on rank 0; None: nothing."""
    names: "KeptNames | None" = field(init=False)
    """Names of the nodes, on rank 0, where predictions are written; None: the nodes have no names."""
    predicted: dict[str, Any] | None = None
    """What the planner predicts of the run; None: it has not chosen the scheme."""

    @cached_property
    def state(self) -> TrainState:
        """What training changes. A run that only predicts has none."""
        return TrainState(self.model, self.cfg)


def set_up(
    cfg: Config,
    world: World,
    meter: Meter,
    graph: Graph | None = None,
    *,
    prepared: PreparedGraph | None = None,
    worker: PreparationWorker | None = None,
    planner: Planner | None = None,
    trains: bool = False,
) -> Run:
    """Prepare ``cfg.dataset``, or ``graph``, and go through all stages. Every rank calls it.

    Optimizations that the model does not support are disabled, and this is logged. Results that an earlier run stored
    in ``runtime.cache_dir`` are not computed again.

    Args:
        graph: on rank 0, the whole graph, which replaces ``cfg.dataset``.
        prepared: the graph of ``cfg`` as this rank reads it; ``graph`` and ``worker`` are then not used.
        worker: on rank 0, where the whole graph is loaded and prepared; None: in this process.
        planner: decides what ``cfg`` leaves open; None: a scheme that is left open is refused.
        trains: whether this is a training that a user has started, which logs what it is, and refuses a graph on which
            there is nothing to train before the graph is ordered.

    Raises:
        FullGNNError: a user error, the same on every rank.
    """
    from fullgnn.schemes.options import num_parts

    worker, planner = worker or PreparationWorker(), planner or Planner()
    cfg = planner.with_scheme(cfg, world, worker)
    parts = num_parts(cfg.scheme, world.size)
    opened: AbstractContextManager[PreparedGraph] = (
        prepared_graph(Preparation(cfg, parts, graph, trains, codec_context=codec_context(cfg)), world, worker)
        if prepared is None
        else nullcontext(prepared)
    )
    with opened as whole:
        run = learn(cfg, world, meter, whole.facts.nodes)
        if trains:
            log_default_metric(cfg.task, run.task)
        run.cfg = planner.with_fetch(run, whole)
        run.scheme = make_scheme(run.cfg, world, meter)
        distribute(run, whole)
        run.predicted = planner.predicted(run, whole)
    prepare_input(run)
    return run


def make_scheme(cfg: Config, world: World, meter: Meter) -> Scheme:
    """Build the scheme of ``cfg`` on this rank, with its kernel."""
    from fullgnn.kernels.spmm import AutoKernel

    kernel = build(cfg.kernel)
    if isinstance(kernel, AutoKernel):
        kernel.remember_in(Cache(cfg.runtime.cache_dir))
        if cfg.runtime.deterministic:
            kernel.choose_by_rule()
    return build(cfg.scheme, world=world, kernel=kernel, meter=meter)


def learn(cfg: Config, world: World, meter: Meter, nodes: NodeFacts) -> Run:
    """Build the model and the task of ``cfg`` for a graph with these ``nodes``.

    Raises:
        ConfigError, DataError: the graph lacks what the task or the model needs; the same on every rank.
    """
    try:
        task = build_task(cfg.task, nodes.labels, nodes.links)
    except DataError as error:
        raise DataError(f"dataset {nodes.name}: {error}") from error
    check_model_fits(cfg, nodes.num_features, 0, world.device)
    model = build_model(cfg, nodes.num_features, task.num_outputs, world.device)
    pairs = takes_links(cfg.task)
    codec = build_codec(cfg.codec) if is_encoded(cfg.codec) else None
    dtype = getattr(torch, cfg.runtime.dtype)
    optimizations = applicable(cfg.optimizations, model, pairs, None if codec else nodes)
    sparse = optimizations.sparse_features is True
    request = replace(block_request(model, optimizations), pairs=pairs, dtype=dtype, codec=codec, sparse=sparse)
    return Run(cfg, world, meter, nodes, model, task, optimizations, request)


def distribute(run: Run, prepared: PreparedGraph, measures: bool = True) -> None:
    """Read this rank's part of a prepared graph, and build its blocks. Every rank calls it.

    The run keeps no reference to ``prepared``. Its input is still the features.

    Args:
        measures: whether the graph has labels of the task; False: its metrics cannot be measured.
    """
    from fullgnn.engine.kept_names import kept_names
    from fullgnn.prepare.statistics import statistics_of

    cfg, world, request, facts = run.cfg, run.world, run.request, prepared.facts
    check_model_fits(cfg, facts.nodes.num_features, facts.num_nodes // world.size, world.device)
    check_offers(request, run.scheme.offers, cfg.model["name"], cfg.task["name"], cfg.scheme["name"])
    if request.pairs and world.dry:
        raise UnsupportedError(f"task={cfg.task['name']}: {NOT_WITHOUT_OTHERS}")
    if request.loss_rows and not run.scheme.offers.loss_rows:
        log.info("optimizations.loss_rows_only is disabled: scheme=%s computes all rows", cfg.scheme["name"])
        run.optimizations, request = replace(run.optimizations, loss_rows_only=False), replace(request, loss_rows=False)
    graph = run.scheme.shard(prepared, request)
    run.graph = replace(graph, labels=run.task.targets(graph.labels)) if measures else graph
    set_spmm_order(run.model, run.optimizations.spmm_order)
    place_rows(run.model, graph.block.source_id)
    run.facts, run.prepared_key = facts, prepared.key
    run.prepared_folder = prepared.folder if prepared.key else None
    run.needed_row_ratio, run.statistics = needed_row_ratio(prepared), None
    if cfg.train.statistics:
        run.statistics = broadcast_object(from_rank0(lambda: statistics_of(prepared, cfg.self_loops)))
    run.codec_state = prepared.part(0).codec_state if world.rank == 0 else None
    run.names = from_rank0(lambda: kept_names(prepared)) if cfg.train.save_predictions and not world.dry else None


def prepare_input(run: Run) -> None:
    """Replace the features of the graph by the input of the model: the features on the device, or A @ H0, or several
    powers A^k @ H0, on device or host. ``optimizations.offload`` is then ``always`` or ``never``. Every rank calls it.
    """
    from fullgnn.engine.aggregate import CachedPowers, aggregate_features, cached_aggregation, offloads
    from fullgnn.kernels.dense.sparse_rows import SparseRows

    graph, device = run.graph, run.world.device
    caches = run.optimizations.cache_aggregation and not run.world.dry  # a dry run does not compute the true A @ H0
    contract = contract_of(run.model)
    propagation = contract.input_propagation if run.optimizations.cache_aggregation else None
    offload = run.optimizations.offload == "always"
    if run.optimizations.offload == "auto" and device.type == "cuda":
        offload = offloads(graph, run.world, 1 if propagation is None else len(contract.input_powers))
    run.optimizations = replace(run.optimizations, offload="always" if offload else "never")
    if propagation is not None:
        kept = CachedPowers(propagation, contract.input_powers)
        cache = Cache(run.cfg.runtime.cache_dir)
        key = aggregation_key(run.cfg, run.prepared_key, cache) if caches else ""
        if key:
            run.graph = cached_aggregation(graph, kept, run.world, offload, cache, key)
        else:
            run.graph = aggregate_features(graph, kept, device, offload)
    elif isinstance(graph.features, SparseRows):
        run.graph = replace(graph, coded=None)
    else:
        assert isinstance(graph.features, torch.Tensor)
        features = to_aligned(graph.features, device) if graph.num_features else graph.features.to(device)
        features = features if run.optimizations.skip_input_gradient else features.requires_grad_()
        run.graph = replace(graph, features=features, coded=None)


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


def with_supported_optimizations(cfg: Config) -> Config:
    """Return ``cfg`` with only the optimizations that its model supports; the planner uses it, without a graph.

    Raises:
        ConfigError: a size or a rate of the model is out of range.
    """
    optimizations = applicable(cfg.optimizations, trial_model(cfg), every_row=takes_links(cfg.task))
    return replace(cfg, optimizations=optimizations)


def may_multiply_sparse(cfg: Config) -> bool:
    """Whether a run of ``cfg``, as the user configures it, multiplies features of which few are not 0 as a sparse
    matrix."""
    if cfg.optimizations.sparse_features is False or is_encoded(cfg.codec):
        return False
    return contract_of(trial_model(cfg)).reads_sparse_rows


def build_model(cfg: Config, in_channels: int, out_channels: int, device: torch.device) -> torch.nn.Module:
    """Build the model with equal parameters on every rank: they are drawn on the CPU and depend only on the seed."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, cfg.runtime.dtype))
    try:
        model = build(cfg.model, in_channels=in_channels, out_channels=out_channels, seed=cfg.seed)
    finally:
        torch.set_default_dtype(default)
    return model.to(device)
