"""Every model of conf/model under every scheme of conf/scheme equals the same model on one dense block, in float64.

A new model or scheme inherits these tests: nothing here names one.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fullgnn.config import Config
from fullgnn.distributed import World
from fullgnn.engine import Run, fit
from fullgnn.engine.checks import applicable
from fullgnn.engine.passes import all_logits, loss_logits
from fullgnn.engine.run import build_model
from fullgnn.engine.state import FlatGradients, place_rows
from fullgnn.engine.step_runner import StepRunner
from fullgnn.kernels.support.aligned import SECTOR_BYTES, pads_rows
from fullgnn.nn import contract_of, set_epoch
from fullgnn.nn.contract import block_request
from fullgnn.schemes import ShardedGraph
from fullgnn.telemetry.meter import Meter
from tests.cases import NUM_CLASSES, config, dense_graph, multi_class
from tests.dense_block import block_of
from tests.schemes.training import STEP, prepare

CONF = Path(__file__).parents[2] / "conf"
OF_LINKS = {"lightgcn"}
"""Models that are trained with a task that finds links: ``tests/tasks/test_links.py`` tests them."""
MODELS = sorted(path.stem for path in (CONF / "model").glob("*.yaml") if path.stem not in ("base", *OF_LINKS))
SCHEMES = sorted(path.stem for path in (CONF / "scheme").glob("*.yaml") if path.stem not in ("base", "auto"))
KINDS = ["symmetric", "directed", "weighted", "isolated", "tiny", "corner"]
LAYOUTS = [("1d", 1, 1), ("1d", 3, 1), ("1.5d", 4, 2), ("1.5d", 6, 3)]
CASE = [
    "runtime.dtype=float64",
    "seed=3",
    "train.epochs=20",
    "train.eval_every=0",
    "optimizer.lr=0.02",
]


def test_every_scheme_is_tested() -> None:
    assert {scheme for scheme, _, _ in LAYOUTS} == set(SCHEMES)


def test_models_of_links_are_those_that_say_so() -> None:
    chosen = {path.stem for path in (CONF / "model").glob("*.yaml")} - {"base"}
    made = {name: build_model(config(f"model={name}"), 5, 3, torch.device("cpu")) for name in chosen}
    of_links = {name for name, model in made.items() if contract_of(model).finds_links}
    assert of_links == OF_LINKS


def case(model: str, scheme: str, replication: int, *overrides: str) -> Config:
    replicas = [] if replication == 1 else [f"scheme.replication={replication}"]
    chosen = config(f"model={model}").model
    depth = [f"model.{key}=3" for key in ("num_layers", "num_hops") if key in chosen]
    return config(f"model={model}", f"scheme={scheme}", *replicas, *CASE, *depth, *overrides)


class OneProcess:
    """A ``Scheme`` of one process."""

    def sum_over_rows(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    def gather(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.detach()


def in_one_process(cfg: Config, kind: str, make: Callable[[], torch.nn.Module] | None = None) -> Any:
    """The model, of ``cfg`` or made by ``make``, and the graph as one dense block."""
    dense = dense_graph(kind)
    model = make() if make else build_model(cfg, dense.features.shape[1], NUM_CLASSES, torch.device("cpu"))
    place_rows(model, torch.arange(len(dense.adj)))
    request = block_request(model, applicable(cfg.optimizations, model))
    train = torch.from_numpy(np.flatnonzero(dense.train_mask))
    masks = np.stack([dense.train_mask, dense.val_mask, ~(dense.train_mask | dense.val_mask)])
    num_split = tuple(int(mask.sum()) for mask in masks)
    graph = ShardedGraph(
        block_of(dense.adj, request),
        block_of(dense.adj, request, train) if request.loss_rows else None,
        torch.from_numpy(dense.features),
        torch.from_numpy(dense.labels),
        torch.from_numpy(masks),
        dense.features.shape[1],
        NUM_CLASSES,
        num_split,
        request.num_blocks,
    )
    return model, graph


def step(model: torch.nn.Module, graph: ShardedGraph, scheme: Any) -> dict[str, np.ndarray]:
    """Loss, logits of all nodes with and without dropout (on rank 0), and the gradient of every parameter."""
    gradients = FlatGradients(model)
    model.train()
    set_epoch(model, STEP)
    loss = multi_class(graph).loss(loss_logits(model, graph), graph.train_labels)
    loss.backward()
    scheme.sum_over_rows(gradients.flat)
    found = {"loss": scheme.sum_over_rows(loss.detach().clone()).cpu().numpy()}
    found |= {name: parameter.grad.cpu().numpy() for name, parameter in model.named_parameters()}
    with torch.no_grad():
        logits = {"logits": all_logits(model, graph), "evaluation": all_logits(model.eval(), graph)}
    gathered = {name: scheme.gather(rows) for name, rows in logits.items()}
    return found | {name: rows.numpy() for name, rows in gathered.items() if rows is not None}


def epochs(model: torch.nn.Module, graph: ShardedGraph, scheme: Any, cfg: Config) -> dict[str, np.ndarray]:
    """Losses and parameters after training."""
    alone: Any = None
    run = Run(cfg, alone, Meter(torch.device("cpu")), alone, model, multi_class(graph), cfg.optimizations, alone)
    run.scheme, run.graph = scheme, graph
    trained = fit(StepRunner(run))
    found = {"losses": np.array([record.loss for record in trained.epochs])}
    return found | {name: parameter.detach().cpu().numpy() for name, parameter in model.named_parameters()}


def distributed(world: World, cfg: Config, kind: str, trains: bool) -> dict[str, np.ndarray]:
    _, scheme, job = prepare(world, cfg, kind)
    return epochs(job.model, job.graph, scheme, cfg) if trains else step(job.model, job.graph, scheme)


def expected(cfg: Config, kind: str, trains: bool) -> dict[str, np.ndarray]:
    model, graph = in_one_process(cfg, kind)
    return epochs(model, graph, OneProcess(), cfg) if trains else step(model, graph, OneProcess())


def compare(found: list[dict[str, np.ndarray]], exact: dict[str, np.ndarray], tolerance: float, case: Any) -> None:
    assert found[0].keys() == exact.keys()
    for rank in found:
        for name, array in rank.items():
            np.testing.assert_allclose(array, exact[name], rtol=tolerance, atol=tolerance, err_msg=f"{case} {name}")


def sharpen(model: torch.nn.Module) -> torch.nn.Module:
    """Let the logits of every attention layer lie far beyond +-80."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "att_" in name:
                parameter.mul_(150)
    return model


def sharp_step(world: World, cfg: Config, kind: str) -> dict[str, np.ndarray]:
    _, scheme, job = prepare(world, cfg, kind)
    return step(sharpen(job.model), job.graph, scheme)


@pytest.mark.sample(5)
@pytest.mark.parametrize(("world_size", "replication"), [(1, 1), (4, 2), (6, 3)])
@pytest.mark.parametrize("split", ["true", "false"])
def test_attention_to_neighbours_on_several_replicas_with_large_logits(
    ranks, world_size: int, replication: int, split: str
) -> None:
    """One softmax over edges that lie in several stages and on several replicas."""
    cfg = case("gat", "1d" if replication == 1 else "1.5d", replication, f"scheme.split_rows={split}")
    model, graph = in_one_process(cfg, "symmetric")
    first = sharpen(model).layers[0].conv
    rows = (graph.features @ first.weight).unflatten(1, (first.heads, -1))
    logits = (rows * first.att_source).sum(-1)
    assert logits.max() > 80 and logits.min() < -80
    if world_size > 1:
        adj, half = dense_graph("symmetric").adj, 14  # the first half of the nodes is the first part, or more than it
        assert (adj[:, :half].any(1) & adj[:, half:].any(1)).sum() > 20
    found = ranks(world_size)(sharp_step, cfg, "symmetric")
    compare(found, step(model, graph, OneProcess()), 1e-9, split)


def halo_kept(world: World, cfg: Config) -> dict[str, Any]:
    """The rows that arrive in a stage, the memory for them, and the largest tensor that the backward pass keeps."""
    _, scheme, job = prepare(world, cfg, "symmetric")
    kept: list[int] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(len(tensor) if tensor.dim() else 0)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = job.task.loss(loss_logits(job.model, job.graph), job.graph.train_labels)
    loss.backward()
    pool = scheme.context.buffers
    stages = job.graph.block.stages(job.model.layers[0].conv.edge_set)
    return {
        "most_rows": max(stage.csr.num_cols for stage in stages),
        "num_own": len(job.graph.block.source_id),
        "bytes": sum(tensor.nbytes for tensor in pool.tensors()),
        "padded_row": SECTOR_BYTES if pads_rows(world.device) else 0,  # of the last layer, copied on a GPU
        "kept": max(kept),
    }


def test_the_rows_of_other_ranks_live_for_a_stage(ranks) -> None:
    """GAT with three layers on four ranks holds at most two stages' rows, at its widest layer, and keeps none."""
    heads, width = 8, 8
    keys = ["scheme.shared_memory=false", "scheme.fetch=stages"]
    cfg = case("gat", "1d", 1, f"model.heads={heads}", f"model.hidden_channels={width}", *keys)
    for rank in ranks(4)(halo_kept, cfg):
        assert rank["bytes"] <= rank["most_rows"] * (2 * (heads * width + heads) * 8 + rank["padded_row"])
        assert rank["kept"] <= max(rank["num_own"], heads * width)


@pytest.mark.sample(9)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("scheme", "world_size", "replication"), LAYOUTS)
def test_a_step_equals_the_dense_block(
    ranks, model: str, scheme: str, world_size: int, replication: int, every_case: bool
) -> None:
    variants = [[], ["scheme.split_rows=false", "scheme.stage_order=broadcast"]]
    if world_size == 1:
        variants = variants[:1]  # there is nothing to split and to broadcast
    if every_case:
        variants += [["scheme.fetch=whole"], ["scheme.shared_memory=false"], ["optimizations.loss_rows_only=true"]]
    here = LAYOUTS.index((scheme, world_size, replication)) + MODELS.index(model)
    for number, overrides in enumerate(variants):
        if not every_case and len(variants) > 1 and (number + here) % 2:
            continue  # each model on half of the layouts
        cfg = case(model, scheme, replication, *overrides)
        turn = 1 + 2 * number + MODELS.index(model) % 2
        for kind in KINDS if every_case else KINDS[turn : turn + 1]:
            found = ranks(world_size)(distributed, cfg, kind, False)
            compare(found, expected(cfg, kind, False), 1e-10, (kind, overrides))


OPTIONS = [
    ("gcn", "model.norm=batch", "model.residual=true"),
    ("gcn", "model.norm=layer", "model.jumping_knowledge=max", "model.bias=false"),
    ("sage", "model.norm=batch", "model.jumping_knowledge=cat"),
    ("gin", "model.norm=batch", "model.train_eps=true"),
    ("gat", "model.residual=true", "model.jumping_knowledge=sum"),
    ("sage", "model.input_dropout=0"),
    ("gcn", "model.input_dropout=0", "model.residual=true", "model.num_layers=1"),
    ("gcn", "model.input_dropout=0", "model.residual=true", "optimizations.offload=always"),
    ("sage", "model.input_dropout=0", "model.residual=true", "model.hidden_channels=5"),
    ("gin", "model.input_dropout=0", "model.residual=true", "model.hidden_channels=5", "optimizations.offload=always"),
    ("sage", "model.aggregation=max", "model.norm=layer", "model.residual=true"),
    ("gin", "model.input_dropout=0", "optimizations.offload=always"),
    ("ngcn", "model.input_dropout=0", "model.classifier=attention"),
    ("ngcn", "model.input_dropout=0", "optimizations.offload=always", "model.num_copies=2"),
    ("sgc", "optimizations.offload=always"),
    ("sgc", "optimizations.cache_aggregation=false", "optimizations.spmm_order=propagate"),
    ("sgc", "model.embedding_channels=4"),
    ("gcnii", "model.shared_weights=false", "model.input_dropout=0"),
    ("appnp", "model.norm=batch", "model.residual=true"),
]
"""Keys of models, and of optimizations that read their input in another form."""


@pytest.mark.sample(2)
@pytest.mark.parametrize(("scheme", "world_size", "replication"), LAYOUTS)
def test_options_of_models_equal_the_dense_block(
    ranks, scheme: str, world_size: int, replication: int, every_case: bool
) -> None:
    """A norm over all nodes, and products with the input that are kept, are those of one process."""
    turn = LAYOUTS.index((scheme, world_size, replication)) // 2  # each case on two layouts
    for number, (model, *overrides) in enumerate(OPTIONS):
        if not every_case and (number + turn) % 2:
            continue
        split = f"scheme.split_rows={'true' if number // 2 % 2 else 'false'}"
        cfg, kind = case(model, scheme, replication, *overrides, split), KINDS[1 + number // 4 % 2]
        found, exact = ranks(world_size)(distributed, cfg, kind, False), expected(cfg, kind, False)
        for name in ("embedding.weight",):  # its rows lie on several ranks
            exact.pop(name, None)
            for rank in found:
                rank.pop(name, None)
        compare(found, exact, 1e-10, (model, overrides))


def bytes_of_epochs(world: World, cfg: Config) -> dict[str, Any]:
    """What this rank receives in three epochs, and the columns that it multiplies."""
    meter, _, job = prepare(world, cfg, "symmetric")
    meter.take()
    runner = StepRunner(job)
    epochs = [runner(epoch).cost.read() for epoch in range(1, 4)]
    return {"bytes": [cost.bytes_received for cost in epochs], "counts": [cost.counts for cost in epochs]}


@pytest.mark.parametrize(("scheme", "world_size", "replication"), LAYOUTS[1:])
def test_an_epoch_of_sgc_reads_no_edge(ranks, scheme: str, world_size: int, replication: int) -> None:
    for rank in ranks(world_size)(bytes_of_epochs, case("sgc", scheme, replication)):
        assert rank["counts"] == [{}] * 3
        assert all(set(moved) == {"all_reduce"} for moved in rank["bytes"]), rank["bytes"]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("scheme", "world_size", "replication"), LAYOUTS)
@pytest.mark.sample(19)
def test_twenty_epochs_equal_the_dense_block(ranks, model: str, scheme: str, world_size: int, replication: int) -> None:
    for kind in ("symmetric", "directed"):
        cfg = case(model, scheme, replication)
        found = ranks(world_size)(distributed, cfg, kind, True)
        compare(found, expected(cfg, kind, True), 1e-8, kind)
