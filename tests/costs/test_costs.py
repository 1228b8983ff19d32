"""The planned cost of a rank, the cost of its dry run and its cost in a real job are equal."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from fullgnn.config import Config
from fullgnn.costs.predict import received_bytes
from fullgnn.costs.simulate import prepare_for
from fullgnn.costs.statistics import counted_job, keep_job, kept_job
from fullgnn.costs.trace import trace_epoch
from fullgnn.distributed import World, dry_world
from fullgnn.engine import fit
from fullgnn.engine.run import with_supported_optimizations
from fullgnn.engine.step_runner import StepRunner
from fullgnn.nn.contract import block_request, trial_model
from fullgnn.schemes.layout import lay_out
from fullgnn.storage.cache import Cache
from tests.cases import LAYOUTS, config, dense_graph, layout_overrides
from tests.schemes.training import only_product, prepare

CHOICES = {
    "default": ["scheme.shared_memory=false"],
    "in place": ["model.input_dropout=0"],
    "needed rows": ["scheme.shared_memory=false", "scheme.exchange=needed_rows", "optimizations.loss_rows_only=true"],
    "published": ["scheme.stage_order=broadcast", "scheme.exchange=broadcast", "scheme.split_rows=false"],
    "broadcast": ["scheme.stage_order=broadcast", "scheme.exchange=auto", "optimizations.cache_aggregation=false"],
    "whole": ["scheme.fetch=whole", "scheme.shared_memory=false"],
    "whole in place": ["scheme.fetch=whole", "scheme.exchange=broadcast"],
    "packed": ["scheme.fetch=packed"],
    "packed in pieces": ["scheme.fetch=packed", "scheme.piece_rows=3", "optimizations.loss_rows_only=true"],
    "on the wire": ["scheme.wire_dtype=bfloat16", "optimizations.skip_input_gradient=false", "model.num_layers=3"],
}


def cost(world: World, cfg: Config, kind: str) -> dict:
    """The cost of the last epoch on this rank, the rank's peak tensor memory, and its rows and non-zeros."""
    _meter, _scheme, job = prepare(world, cfg, kind)
    result = fit(StepRunner(job))
    last = result.epochs[-1].cost
    return {
        "bytes": {collective: count for collective, count in last.bytes_received.items() if count},
        "counts": last.counts,
        "peak": result.peak_tensor_bytes,
        "nnz": only_product(job).multiply.nnz,
        "node_id": job.graph.block.source_id.tolist(),
    }


def planned_bytes(cfg: Config, world_size: int, kind: str) -> list[dict[str, int]]:
    cfg = with_supported_optimizations(cfg)
    prepared = prepare_for(cfg, world_size, dense_graph(kind).graph())
    job = counted_job(cfg, world_size, prepared)
    received = {name: counts.ravel() for name, counts in received_bytes(job, trace_epoch(job, 0)).items()}
    return [{name: counts[rank] for name, counts in received.items() if counts[rank]} for rank in range(world_size)]


@pytest.mark.sample(48)
@pytest.mark.parametrize(("world_size", "replication"), LAYOUTS)
@pytest.mark.parametrize("choice", CHOICES)
def test_plan_dry_run_and_job_agree(ranks, world_size: int, replication: int, choice: str) -> None:
    kind = "symmetric" if choice in ("needed rows", "in place") else "directed"
    cfg = config(*layout_overrides(replication), "train.epochs=2", *CHOICES[choice])
    real = ranks(world_size)(cost, cfg, kind)
    assert planned_bytes(cfg, world_size, kind) == [rank["bytes"] for rank in real]
    for rank, expected in enumerate(real):
        with dry_world(cfg.runtime, rank, world_size) as world:
            dry = cost(world, cfg, kind)
        peak = expected.pop("peak")  # gloo's threads free transferred tensors at no fixed time
        assert dry.pop("peak") == pytest.approx(peak, rel=0.1)
        assert dry == expected


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", ["symmetric", "directed"])
@pytest.mark.parametrize("model", ["gcn", "sage", "gat"])
def test_planned_products_are_laid_out_as_those_of_the_run(tmp_path: Path, model: str, kind: str) -> None:
    """The stages of replicas follow from the non-zeros of the matrix that the model multiplies by, which has a whole
    diagonal for some models, and for ``sage`` has not. A job that was kept has them too."""
    cache = Cache(str(tmp_path))
    for world_size, replication in LAYOUTS:
        cfg = with_supported_optimizations(config(*layout_overrides(replication), f"model={model}"))
        prepared = prepare_for(cfg, world_size, dense_graph(kind).graph())
        job = counted_job(cfg, world_size, prepared)
        key = cache.key(world_size=world_size, replication=replication)
        keep_job(job, key, cache)
        kept = kept_job(cfg, world_size, key, cache)
        assert kept is not None
        request = block_request(trial_model(cfg), cfg.optimizations)
        layout, _ = lay_out(prepared, job.grid, request)
        for (name, product), planned_job in itertools.product(layout.products.items(), (job, kept)):
            planned = planned_job.products[name]
            assert planned.stages == product.stages and planned.stage_order == product.stage_order
            np.testing.assert_array_equal(planned.transports, product.transports)
            np.testing.assert_array_equal(planned.in_rows.bounds, product.in_rows.bounds)
            np.testing.assert_array_equal(planned.out_rows.bounds, product.out_rows.bounds)


EDGE_MODELS = {
    "gat": ["model=gat"],
    "gatv2": ["model=gatv2", "model.norm=batch"],
    "maximum": ["model=sage", "model.aggregation=max", "model.hidden_channels=7"],
    "vectors": ["model=gat", "model.embedding_channels=6"],
}


def received_by_edges(world: World, cfgs: list[Config], kind: str) -> list[dict[str, int]]:
    """The bytes that this rank receives in an epoch of each run."""
    by_run = []
    for cfg in cfgs:
        _meter, _, job = prepare(world, cfg, kind)
        result = fit(StepRunner(job))
        received = result.epochs[-1].cost.bytes_received
        by_run.append({name: count for name, count in received.items() if count})
    return by_run


@pytest.mark.sample(16)
@pytest.mark.parametrize(("world_size", "replication"), LAYOUTS)
def test_the_bytes_of_models_that_read_edges_are_those_of_the_job(
    ranks, world_size: int, replication: int, every_case: bool
) -> None:
    runs, turn = list(itertools.product(CHOICES, EDGE_MODELS)), LAYOUTS.index((world_size, replication))
    kind = ("symmetric", "directed")[turn % 2]
    chosen = [run for number, run in enumerate(runs) if (number + turn // 2) % (3 if every_case else 4) == 0]
    common = *layout_overrides(replication), "train.epochs=1", "train.eval_every=0", "runtime.dtype=float64"
    cfgs = [config(*common, *CHOICES[choice], *EDGE_MODELS[model]) for choice, model in chosen]
    real = ranks(world_size)(received_by_edges, cfgs, kind)
    for number, (cfg, run) in enumerate(zip(cfgs, chosen)):
        assert planned_bytes(cfg, world_size, kind) == [rank[number] for rank in real], run
