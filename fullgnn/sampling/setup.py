"""Set up sampled training before its first epoch, and its exact evaluation on the full graph."""

import logging
from collections.abc import Callable
from contextlib import nullcontext
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch

from fullgnn.codecs import Codec, Unencoded, build_codec, encoded, num_bytes
from fullgnn.config import MinibatchConfig, build, target_of
from fullgnn.distributed import World, broadcast_object, from_rank0
from fullgnn.engine.run import Run, distribute, learn, make_scheme, prepare_input
from fullgnn.engine.state import sharded_names
from fullgnn.engine.summary import codec_record, log_inexact
from fullgnn.errors import ConfigError, UnsupportedError
from fullgnn.graph import Graph, dataset_identity, load_dataset
from fullgnn.graph.remarks import noted, say
from fullgnn.nn.contract import contract_of, contracts_of
from fullgnn.partition.facts import NodeFacts
from fullgnn.prepare.source import Preparation, codec_context, prepared_graph
from fullgnn.sampling.blocks import BlockMaker
from fullgnn.sampling.caches import Accesses, CacheNothing
from fullgnn.sampling.features import Cached, Encoding, FeatureSource, InPlace, SparseInPlace
from fullgnn.sampling.host_graph import Encode, HostGraph, as_sparse
from fullgnn.sampling.loader import Loader
from fullgnn.sampling.pagraph import cross_partition_free
from fullgnn.sampling.precompute import Precomputed
from fullgnn.sampling.row_file import RowFiles
from fullgnn.sampling.sample import BatchSampler
from fullgnn.sampling.samplers import Sampler
from fullgnn.sampling.sharing import share
from fullgnn.sampling.steps import SampledSteps
from fullgnn.sampling.workers import Workers, slot_type
from fullgnn.schemes.base import CHOOSE_SCHEME, BlockRequest
from fullgnn.storage.cache import Cache
from fullgnn.tasks import lacks_examples, log_default_metric, refuse_without_examples, takes_links, task_contract
from fullgnn.tasks.task import NodeTask
from fullgnn.telemetry.meter import Meter

log = logging.getLogger(__name__)


PAGRAPH = "pagraph"
"""The choice of ``loader.split`` in which every rank has training nodes of its own."""


def check_sampled(cfg: MinibatchConfig) -> None:
    """Refuse what sampled training cannot do; loads nothing.

    Raises:
        ConfigError, UnsupportedError: one line, the same in every process.
    """
    if takes_links(cfg.task):
        raise UnsupportedError(
            f"sampled training learns tasks of nodes, and task={cfg.task['name']} finds links: use python -m"
            " fullgnn.train, or choose task=node_classification or node_regression"
        )
    if cfg.runtime.dry_run:
        raise UnsupportedError("sampled training has no dry run: leave out runtime.dry_run")
    if cfg.scheme["name"] == "auto":
        raise ConfigError(f"scheme=auto plans epochs of full-batch training: {CHOOSE_SCHEME} for the evaluation")
    if cfg.loader.sample_on_gpu and cfg.loader.num_workers:
        raise ConfigError("workers draw on the host: set loader.num_workers=0, or loader.sample_on_gpu=false")


def set_up_sampled(cfg: MinibatchConfig, world: World, meter: Meter, graph: Graph | None = None) -> SampledSteps:
    """Load the graph on rank 0, share it, and build model, task and sampler. Every rank calls it.

    Args:
        graph: the whole graph on rank 0, which replaces ``cfg.dataset``.

    Raises:
        FullGNNError: a user error, the same on every rank.
    """
    check_sampled(cfg)
    _check_cache(cfg)
    scheme = make_scheme(cfg, world, meter)
    graph, identity = from_rank0(partial(_load, cfg, graph)) or (None, None)
    run = learn(cfg, world, meter, broadcast_object(None if graph is None else NodeFacts.of(graph)))
    run.scheme = scheme
    log_default_metric(cfg.task, run.task)
    _check_model(run)
    request, contract = run.request, contract_of(run.model)
    codec = build_codec(cfg.codec, codec_context(cfg)) or Unencoded()
    precomputed = Precomputed.of(run.model, cfg.model["name"]) if cfg.loader.precompute else None
    num_rows = contract.num_row_blocks if precomputed is None else 1
    num_hops = request.num_blocks - contract.num_row_blocks - (precomputed is not None)
    host = _host_graph(run, graph, codec, num_hops, precomputed)
    look = getattr(target_of(cfg.sampler), "remarks", None)
    remarks = {} if look is None else noted(look(host.extra))
    if graph is not None:
        say(graph.name, noted(graph.remarks, remarks))
    sampler, home = _sampler(run, host, num_hops)
    maker = BlockMaker(host, request, _dtype(cfg), world.device, num_rows, world.size == 1, home)
    _check_split(cfg, host, sampler)
    task, place = cast(NodeTask, run.task), (world.rank, world.size)
    batches = BatchSampler(host, sampler, task, cfg.loader.batch_size, cfg.seed, *place)
    features = _features(run, host, codec, batches)
    workers = _workers(run, batches, features) if cfg.loader.num_workers else None
    loader = Loader(batches, features, maker, meter, workers, precomputed, world.ranks_per_device)
    about = None
    if type(codec) is not Unencoded:
        num_columns = run.nodes.num_features * (1 if precomputed is None else len(precomputed.powers))
        about = _codec_about(cfg, host, num_columns)
    run.codec_state = host.codec_state
    return SampledSteps(run, loader, _distributor(run, graph, identity), about, remarks)


def _distributor(run: Run, graph: Graph | None, identity: dict[str, Any] | None) -> Callable[[], Run]:
    """Makes the run on the whole graph, by which the model of ``run`` is evaluated.

    Args:
        graph: on rank 0.
        identity: on rank 0, see ``Preparation``.
    """
    full, state = copy(run), run.codec_state
    if _minibatch(run).loader.precompute:  # the codec encodes products, and the evaluation reads exact features
        full.cfg, state = replace(run.cfg, codec={"_target_": "fullgnn.codecs.Unencoded", "name": "none"}), None
        full.request = replace(run.request, codec=None)
    # Evaluation computes the output of all nodes.
    full.optimizations = replace(run.optimizations, loss_rows_only=False)
    full.request = replace(full.request, loss_rows=False)
    context, given = replace(codec_context(full.cfg), of_these_features=True, state=state), [graph]

    def distributed() -> Run:
        whole = given.pop()  # it is not held any longer
        said = () if whole is None else whole.remarks.keys()
        parts = full.scheme.num_parts
        preparation = Preparation(full.cfg, parts, whole, identity=identity, codec_context=context)
        with prepared_graph(preparation, full.world, said=said) as prepared:
            distribute(full, prepared)
        del whole, preparation
        prepare_input(full)
        return full

    return distributed


def _stay_sparse(cfg: MinibatchConfig, request: BlockRequest) -> bool:
    """Whether batches read the features as sparse matrices: nothing is encoded, cached, mapped or multiplied before."""
    changes = request.codec is not None or cfg.loader.precompute or cfg.loader.map_features
    return request.sparse and not changes and target_of(cfg.cache) is CacheNothing


def _codec_about(cfg: MinibatchConfig, host: HostGraph, num_columns: int) -> dict[str, Any]:
    """The field ``codec`` of ``RunRecord``; logs that the run is inexact."""
    about = codec_record(cfg, num_bytes(host.features, host.codec_state) / host.num_nodes, num_columns)
    what = "products that the evaluation computes from exact features" if cfg.loader.precompute else "features"
    log_inexact(about, what)
    return about


def _load(cfg: MinibatchConfig, graph: Graph | None) -> tuple[Graph, dict[str, Any] | None]:
    """The graph, and by which files it is known, if it is that of ``cfg.dataset``."""
    Cache(cfg.runtime.cache_dir).check()
    identity = None
    if graph is None:
        identity = dataset_identity(cfg.dataset)  # before the files are read
        graph = load_dataset(cfg.dataset)
    refuse_without_examples(cfg.task, f"the graph {graph.name}", lacks_examples(graph))
    return graph, identity


def _minibatch(run: Run) -> MinibatchConfig:
    return cast(MinibatchConfig, run.cfg)


def _dtype(cfg: MinibatchConfig) -> torch.dtype:
    return getattr(torch, cfg.runtime.dtype)


def _sampler(run: Run, graph: HostGraph, num_hops: int) -> tuple[Sampler, torch.device]:
    """The sampler, and the device on which its hops are."""
    cfg = _minibatch(run)
    sampler: Sampler = build(cfg.sampler, graph=graph, num_hops=num_hops, seed=cfg.seed)
    if not cfg.loader.sample_on_gpu:
        return sampler, torch.device("cpu")
    moved = getattr(sampler, "on_gpu", None)
    if moved is None:
        raise UnsupportedError(f"sampler={cfg.sampler['name']} runs on the host: leave out loader.sample_on_gpu")
    return moved(run.world.device, run.request.self_loops), run.world.device


def _check_split(cfg: MinibatchConfig, host: HostGraph, sampler: Sampler) -> None:
    """Refuse a sampler that draws other things than neighbours of training nodes, where these are divided."""
    if host.split is not None and sampler.items is not host.train:
        raise ConfigError(
            f"loader.split=pagraph divides training nodes, and sampler={cfg.sampler['name']} has other items: leave"
            " out loader.split"
        )


def _features(run: Run, host: HostGraph, codec: Codec, batches: BatchSampler) -> FeatureSource:
    """The features as this rank reads them: encoded rows on the host, some of them on the device, decoded there."""
    cfg, device, rows = _minibatch(run), run.world.device, host.features
    if not isinstance(rows, np.ndarray):
        return SparseInPlace(rows, device)
    cache, encoding = build(cfg.cache), Encoding(codec, _dtype(cfg), host.codec_state)
    if not isinstance(cache, CacheNothing):
        accesses = Accesses(host, batches.counts, rows.shape[1] * rows.itemsize, batches.held)
        return Cached(rows, device, cache, accesses, encoding)
    reads_rows = contract_of(run.model).reads_input_rows and not cfg.loader.precompute and device.type == "cpu"
    source = InPlace if reads_rows and type(codec) is Unencoded else FeatureSource
    return source(rows, device, encoding)


def _workers(run: Run, batches: BatchSampler, features: FeatureSource) -> Workers:
    """The processes that make the batches of this rank."""
    loader, rows = _minibatch(run).loader, features.rows
    num_inputs, hop_bytes = batches.usual_size()
    num_inputs = 0 if isinstance(features, InPlace) else num_inputs
    num_rows = max(1, min(num_inputs, int(loader.slot_megabytes * 1e6) // max(1, features.row_bytes)))
    batches.sampler.sample(batches.sampler.items[:0], 0)  # compiled here, once for all workers
    slot, timeout_s = slot_type(num_rows, rows.shape[1], rows.dtype, hop_bytes), run.cfg.runtime.timeout_s
    numbers = loader.num_workers, loader.num_slots
    return Workers(batches.sample, features, slot, *numbers, run.world.rank, timeout_s)


def _check_cache(cfg: MinibatchConfig) -> None:
    if not hasattr(target_of(cfg.cache), "rows"):
        raise UnsupportedError(
            f"cache={cfg.cache['name']}: {cfg.cache['_target_']} has no method rows(accesses, epoch), which a cache is"
            " asked by: make it a class, as docs/extending.md explains"
        )


def _check_model(run: Run) -> None:
    """Refuse a model, or a task, that cannot learn from batches."""
    name = run.cfg.model["name"]
    if sharded_names(run.model):
        raise UnsupportedError(
            f"model={name} has a trainable vector for each node, which sampled training does not support: leave out"
            " model.embedding_channels, or use python -m fullgnn.train"
        )
    if run.world.size > 1 and any(contract.joins_rows for contract in contracts_of(run.model)):
        raise UnsupportedError(
            f"model={name} adds up the rows of a batch, some of which several ranks have: choose model.norm=layer in"
            " place of model.norm=batch, or one process"
        )
    if not task_contract(run.task).learns_batches:
        raise UnsupportedError(
            f"task={run.cfg.task['name']} cannot learn from batches: give its class the methods loss(output, targets,"
            " total) and total(targets), and say so by contract = TaskContract(learns_batches=True), as"
            " docs/extending.md explains, or use python -m fullgnn.train"
        )


def _host_graph(
    run: Run, graph: Graph | None, codec: Codec, num_hops: int, precomputed: Precomputed | None
) -> HostGraph:
    """The graph, once on each machine, with what sampler, codec and split have prepared."""
    cfg, world, request = _minibatch(run), run.world, run.request
    codec_keys = dict(cfg.codec) | codec_context(cfg).identity(cfg.codec)
    files = RowFiles(Cache(cfg.runtime.cache_dir), codec_keys) if cfg.loader.map_features else None

    def made() -> HostGraph:
        assert graph is not None
        target = target_of(cfg.sampler)
        prepare, check = getattr(target, "prepare", None), getattr(target, "check", None)
        if check is not None:
            check(graph, request)
        keys = {key: value for key, value in cfg.sampler.items() if not key.startswith("_") and key != "name"}
        extra = {} if prepare is None else prepare(graph, cfg.seed, **keys)
        encode: Encode = partial(encoded, codec, Cache(cfg.runtime.cache_dir), codec_keys)
        if files is not None:
            encode = partial(files.write, codec)
        if _stay_sparse(cfg, request):
            encode = as_sparse
        read = graph if precomputed is None else replace(graph, features=precomputed.rows(graph, cfg.runtime.dtype))
        host = HostGraph.of(read, request, cfg.runtime.dtype, extra, encode)
        if cfg.loader.split != PAGRAPH:
            return host
        parts = cross_partition_free(host.indptr, host.indices, host.train, world.size, num_hops)
        log.info(
            "loader.split=pagraph: %d parts with %d to %d training nodes; copies: %.1f %% of the nodes a part",
            *(parts.num_parts, parts.num_train.min(), parts.num_train.max(), 100 * parts.redundancy),
        )
        return replace(host, split=parts)

    with files or nullcontext():
        host = from_rank0(made)
        if files is None or world.size == 1:
            return share(world, host)
        shared = share(world, None if host is None else replace(host, features=host.features[:0]))
        return replace(shared, features=files.share(world))
