"""Everything a run needs before its first epoch: the graph handed out, the model made, the constant work done."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from fullgnn.config import Config, WorkConfig, build
from fullgnn.distributed import World, from_rank0, share
from fullgnn.engine.aggregate import aggregate_features, cached_aggregation, offloads
from fullgnn.engine.deterministic import check_deterministic
from fullgnn.engine.prepare import Preparation, prepare
from fullgnn.engine.work import applicable
from fullgnn.graph import Graph
from fullgnn.kernels.spmm import AutoKernel
from fullgnn.kernels.support.lines import to_lines
from fullgnn.nn import set_spmm_order
from fullgnn.reorder.structure import Structure
from fullgnn.schemes.base import PreparedGraph, Scheme, ShardedGraph
from fullgnn.storage.cache import Cache
from fullgnn.telemetry.meter import Meter

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """What a run trains, ready on every rank."""

    model: torch.nn.Module
    graph: ShardedGraph
    preparation: Preparation
    work: WorkConfig  # as it is applied to this model
    structure: Structure | None  # rank 0's


def make_scheme(cfg: Config, world: World, meter: Meter) -> Scheme:
    """The scheme of ``cfg`` on this rank, with its kernel.

    Raises:
        ConfigError: ``runtime.deterministic`` with a kernel that is not, the same on every rank.
    """
    check_deterministic(cfg, world.device)
    kernel = build(cfg.kernel)
    if isinstance(kernel, AutoKernel):
        kernel.remember_in(Cache(cfg.runtime.cache_dir))
        if cfg.runtime.deterministic:
            kernel.choose_by_rule()
    return build(cfg.scheme, world=world, kernel=kernel, meter=meter)


def set_up(
    cfg: Config,
    world: World,
    scheme: Scheme,
    graph: Graph | None = None,
    look: Callable[[Config, PreparedGraph], None] = lambda cfg, prepared: None,
) -> Job:
    """Prepare ``cfg.dataset``, or rank 0's ``graph``, on rank 0, keep this rank's share and make the model for it.

    What of ``cfg.work`` the model does not allow is left off, with a line. What an earlier run left in
    ``runtime.cache_dir`` is not computed again.

    Args:
        look: sees the prepared graph on rank 0, with the configuration that applies.

    Raises:
        FullGNNError: a user's mistake, the same on every rank.
    """
    cache = Cache(cfg.runtime.cache_dir)
    from_rank0(cache.check)
    cfg = with_allowed_work(cfg)

    def prepared() -> tuple[PreparedGraph, Preparation]:
        found = prepare(cfg, scheme.num_parts, graph, cache)
        look(cfg, found[0])
        return found

    return hand_out(cfg, world, scheme, from_rank0(prepared))


def with_allowed_work(cfg: Config) -> Config:
    """``cfg`` with the ``work`` that its model allows.

    Raises:
        ConfigError: a bad size or rate of the model, before the graph, which may take long, is prepared.
    """
    return replace(cfg, work=applicable(cfg.work, build_model(cfg, 1, 1, torch.device("cpu"))))


def hand_out(cfg: Config, world: World, scheme: Scheme, prepared: tuple[PreparedGraph, Preparation] | None) -> Job:
    """The second half of ``set_up``: share out what rank 0 has ``prepared``, which is None elsewhere.

    Args:
        cfg: ``with_allowed_work``.
    """
    work, cache = cfg.work, Cache(cfg.runtime.cache_dir)
    sharded = scheme.shard(prepared[0] if prepared else None, work.loss_rows_only)
    preparation = share(prepared[1] if prepared else None)
    structure = prepared[0].structure if prepared else None
    del prepared
    if work.loss_rows_only and sharded.train_adj is None:
        log.info("work.loss_rows_only is off: scheme=%s computes all rows", cfg.scheme["name"])
        work = replace(work, loss_rows_only=False)
    model = build_model(cfg, sharded.num_features, sharded.num_classes, world.device)
    set_spmm_order(model, work.spmm_order)
    key = "" if world.dry else preparation.aggregation_key  # what a dry run computes is not A @ H0
    sharded, work = make_input(sharded, work, world, cache, key)
    return Job(model, sharded, preparation, work, structure)


def make_input(
    graph: ShardedGraph, work: WorkConfig, world: World, cache: Cache | None = None, aggregation_key: str = ""
) -> tuple[ShardedGraph, WorkConfig]:
    """``graph`` with what a model reads in place of the features that its scheme left: these on the device, or A @ H0
    there or on the host; and ``work`` with what was decided about that. Called on every rank.

    Args:
        aggregation_key: of A @ H0 in the ``cache``; empty: it is not kept.
    """
    offload = offloads(work.offload, graph, world)
    work = replace(work, offload="always" if offload else "never")
    if cache is not None and aggregation_key:
        return cached_aggregation(graph, world, offload, cache, aggregation_key), work
    if work.cache_aggregation:
        return aggregate_features(graph, world.device, offload), work
    assert isinstance(graph.features, torch.Tensor)
    features = to_lines(graph.features, world.device)
    return replace(graph, features=features if work.skip_input_gradient else features.requires_grad_()), work


def build_model(cfg: Config, in_channels: int, out_channels: int, device: torch.device) -> torch.nn.Module:
    """The model with the same parameters on every rank: they are drawn on the CPU from the seed alone."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, cfg.runtime.dtype))
    try:
        model = build(cfg.model, in_channels=in_channels, out_channels=out_channels, seed=cfg.seed)
    finally:
        torch.set_default_dtype(default)
    return model.to(device)
