"""Sampled training: the sampling of a batch (op=sampling), and everything from sampling to the update (op=minibatch).

A time is that of one batch, the mean of the ``batches`` that a round makes. Batches are those of an epoch, one after
the other, and another epoch follows. In ``op=sampling`` every method gets the same targets. In ``op=minibatch`` each of
several processes makes batches of its own training nodes, of ``batch_size`` nodes each. Presets of ours train on the
same batches: ``losses`` in the record shows whether they compute the same.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fullgnn.bench.config import BATCH_SIZE, DEFAULT_PRESET, LR, BenchConfig, hidden_of, minibatch_config
from fullgnn.bench.harness import Measurement, Method, Outcome, Results, compared, set_up, timed, training
from fullgnn.bench.peers import candidates
from fullgnn.bench.peers.sampled import SAMPLERS, STEPS, SampledSetting, TrainBatches
from fullgnn.bench.problem import load_graph
from fullgnn.bench.separate import OperatorTimes, Separate
from fullgnn.costs.trace import Operations
from fullgnn.distributed import World, all_gather_objects, broadcast_object, from_rank0
from fullgnn.graph import Graph
from fullgnn.kernels.support.trials import TensorPeak
from fullgnn.nn import set_epoch
from fullgnn.sampling.batches import batch_of, epoch_order, num_batches
from fullgnn.sampling.loader import Minibatch
from fullgnn.sampling.neighbors import NeighborSampler
from fullgnn.sampling.products import SampledMultiplication
from fullgnn.sampling.setup import set_up_sampled
from fullgnn.schemes.block import Block
from fullgnn.telemetry.meter import Cost, Meter

AHEAD = 2
"""Batches that a worker makes ahead: the slots of ours, and the prefetched ones of a torch ``DataLoader``."""
FUSED, SEPARATE, FAST = "fused", "separate operators", "toBlockFast"


def run_sampling(cfg: BenchConfig, world: World) -> Results:
    """Time the samplers, in one process."""
    graph = load_graph(cfg)
    items = np.flatnonzero(graph.train_mask)
    count = num_batches(len(items), cfg.batch_size or BATCH_SIZE)

    def targets() -> Iterator[tuple[np.ndarray, int]]:
        for epoch in itertools.count(1):
            order = epoch_order(items, cfg.seed, epoch)
            for number in range(count):
                yield np.sort(batch_of(order, cfg.batch_size or BATCH_SIZE, number)).astype(np.int32), epoch

    def sampled(made: Method) -> Method:
        """Draws the next batches, and returns the number of their edges."""
        sampler, own, spent = made.run, targets(), OperatorTimes()
        sampler.sample(*next(targets()))  # compiles, which is no part of what an operator takes
        if hasattr(sampler, "spent"):
            sampler.spent = spent

        def sample(num: int) -> float:
            hops = itertools.chain.from_iterable(itertools.starmap(sampler.sample, itertools.islice(own, num)))
            return float(sum(hop.num_edges() if callable(hop.num_edges) else hop.num_edges for hop in hops))

        def about(measured: Measurement) -> dict[str, Any]:
            rounds = zip(measured.values[-measured.times.runs :], measured.times.ms, strict=True)
            rates = [drawn / cfg.batches / ms / 1e3 for drawn, ms in rounds]
            return {"m_edges_per_s": float(np.median(rates)), **spent.details()}

        return _method(made, sample, about, cfg, world)

    arrays = graph.indptr.astype(np.int64), graph.indices, cfg.fanouts
    ours = [Method(FUSED, "ours", partial(NeighborSampler, *arrays, seed=cfg.seed))]
    ours += [Method(name, "ours", partial(Separate, *arrays, cfg.seed, name == FAST)) for name in (SEPARATE, FAST)]
    made, missing = set_up([*ours, *candidates(SAMPLERS, cfg.peers, graph, cfg.fanouts)], of_ours=())
    yield Outcome([], missing, _statistics(cfg, graph, count))
    yield compared(cfg, world, list(map(sampled, made)))


def run_minibatch(cfg: BenchConfig, world: World) -> Results:
    """Time batches of sampled training; called on every rank."""
    graph = broadcast_object(from_rank0(lambda: load_graph(cfg)))
    size = cfg.batch_size or BATCH_SIZE
    setting = SampledSetting(cfg.fanouts, size, hidden_of(cfg), LR, cfg.seed, cfg.workers)
    presets = {"ours": DEFAULT_PRESET} if cfg.presets is None else {preset: preset for preset in cfg.presets}
    own = [Method(name, "ours", partial(Ours, cfg, world, graph, preset)) for name, preset in presets.items()]
    made, missing = set_up([*own, *candidates(STEPS, cfg.peers, graph, setting, world.device)], of_ours=())
    count = num_batches(int(graph.train_mask.sum()), size * world.size)
    yield Outcome([], missing, _statistics(cfg, graph, count))
    yield compared(cfg, world, [_method(method, method.run.step, training(method.run), cfg, world) for method in made])
    for method in made:
        if method.kind == "ours":
            method.run.close()


class Ours:
    """The loader and the steps of a sampled training run. Every rank makes one.

    Args:
        preset: as ``conf/bench.yaml`` explains.
    """

    def __init__(self, cfg: BenchConfig, world: World, graph: Graph, preset: str):
        self._meter, run = Meter(world.device), minibatch_config(cfg, world.size, preset)
        self._training = set_up_sampled(run, world, self._meter, graph)
        self._peak, self.num_workers = TensorPeak(world.device), run.loader.num_workers
        self._costs: list[tuple[int, Cost]] = []  # number of batches and what they cost, of each call of ``step``
        self._losses: list[float] = []
        epochs = map(self._training.loader.epoch, itertools.count(1))
        self._batches: Iterator[Minibatch] = itertools.chain.from_iterable(epochs)

    def step(self, num_batches: int) -> float:
        """Train on so many batches; returns the mean of their losses."""
        self._meter.take()
        losses = [self._train(batch) for batch in itertools.islice(self._batches, num_batches)]
        self._costs.append((num_batches, self._meter.take()))
        self._losses += losses
        return sum(losses) / num_batches

    def _train(self, batch: Minibatch) -> float:
        state = self._training.state
        state.model.train()
        set_epoch(state.model, state.batches.count + 1)
        return self._training.watched_step(batch, self._peak).read()[0]

    def details(self) -> dict[str, Any]:
        """What the record says of one batch of the rank that draws most: its time by step and what it reads, in the
        median of the calls of ``step``, and the operations and layers of another batch. Every rank calls it."""
        batch = next(self._batches)
        with Operations() as seen:
            self._train(batch)
        parameters = [*self._training.state.model.parameters()]
        itemsize = parameters[0].element_size()
        own = {
            "steps_ms": self._median("time_ms"),
            "counts": self._median("counts"),
            "operations": {"count": seen.count, "bytes": seen.pass_bytes},
            "layers": [layer_sizes(block) for block in batch.blocks],
            "parameter_bytes": itemsize * sum(parameter.numel() for parameter in parameters),
            "losses": self._losses,
        }
        return max(all_gather_objects(own), key=lambda rank: rank["counts"].get("sampled_edges", 0))

    def _median(self, name: str) -> dict[str, float]:
        """The numbers ``name`` of the costs, for one batch."""
        costs = [{key: value / num for key, value in getattr(cost, name).items()} for num, cost in self._costs]
        keys = dict.fromkeys(itertools.chain.from_iterable(costs))
        return {key: float(np.median([cost.get(key, 0.0) for cost in costs])) for key in keys}

    def close(self) -> None:
        """End the workers."""
        self._training.loader.close()


def layer_sizes(block: Block) -> dict[str, int]:
    """The rows that a layer reads and writes, and the entries of its matrix; 0, if it reads edges one by one."""
    sources = len(block.source_id)
    targets = sources if block.target_index is None else len(block.target_index)
    matrices = [product.multiply for product in block.products.values()]
    edges = [matrix.csr.nnz for matrix in matrices if isinstance(matrix, SampledMultiplication)]
    return {"sources": sources, "targets": targets, "edges": max(edges, default=0)}


def _method(made: Method, step: TrainBatches, about: Any, cfg: BenchConfig, world: World) -> Method:
    """``step`` as a method. What workers have made while other methods had their turn is taken before its time."""
    workers = getattr(made.run, "num_workers", cfg.workers)  # of each rank

    def run() -> tuple[float, list[float]]:
        if workers:
            step(AHEAD * workers)
        elapsed_ms, values = timed(lambda: step(cfg.batches), world.device)()
        return elapsed_ms / cfg.batches, values

    return replace(made, run=run, processes=world.size, details={}, about=about)


def _statistics(cfg: BenchConfig, graph: Graph, count: int) -> dict[str, int | str]:
    keys = "name", "num_nodes", "num_edges", "num_features", "num_classes"
    sizes = {key: getattr(graph, key) for key in keys}
    return sizes | {"fanouts": str(cfg.fanouts), "batch_size": cfg.batch_size or BATCH_SIZE, "num_batches": count}
