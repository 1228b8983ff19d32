"""Every model of conf/model under every scheme of conf/scheme equals the same model on one dense block, in float64.

A new model or scheme inherits these tests: nothing here names one.
"""

from typing import Any

import numpy as np
import pytest
import torch

from fullgnn.config import Config
from fullgnn.distributed import World
from fullgnn.engine.passes import loss_logits
from fullgnn.engine.run import build_model
from fullgnn.engine.step_runner import StepRunner
from fullgnn.kernels.support.aligned import SECTOR_BYTES, pads_rows
from fullgnn.nn import contract_of
from tests.cases import config, dense_graph
from tests.models.exactness import (
    CONF,
    MODELS,
    OF_LINKS,
    OneProcess,
    case,
    compare,
    distributed,
    expected,
    in_one_process,
    step,
)
from tests.schemes.training import prepare

SCHEMES = sorted(path.stem for path in (CONF / "scheme").glob("*.yaml") if path.stem not in ("base", "auto"))
KINDS = ["symmetric", "directed", "weighted", "isolated", "tiny", "corner"]
LAYOUTS = [("1d", 1, 1), ("1d", 3, 1), ("1.5d", 4, 2), ("1.5d", 6, 3)]


def test_every_scheme_is_tested() -> None:
    assert {scheme for scheme, _, _ in LAYOUTS} == set(SCHEMES)


def test_models_of_links_are_those_that_say_so() -> None:
    chosen = {path.stem for path in (CONF / "model").glob("*.yaml")} - {"base"}
    made = {name: build_model(config(f"model={name}"), 5, 3, torch.device("cpu")) for name in chosen}
    of_links = {name for name, model in made.items() if contract_of(model).finds_links}
    assert of_links == OF_LINKS


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
    of_ranks = ranks(world_size)(sharp_step, cfg, "symmetric")
    compare(of_ranks, step(model, graph, OneProcess()), 1e-9, split)


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
        for kind in KINDS[(number + here) % 3 :: 3] if every_case else KINDS[turn : turn + 1]:
            of_ranks = ranks(world_size)(distributed, cfg, kind, False)
            compare(of_ranks, expected(cfg, kind, False), 1e-10, (kind, overrides))


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


@pytest.mark.sample(4)
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
        of_ranks, exact = ranks(world_size)(distributed, cfg, kind, False), expected(cfg, kind, False)
        for name in ("embedding.weight",):  # its rows lie on several ranks
            exact.pop(name, None)
            for rank in of_ranks:
                rank.pop(name, None)
        compare(of_ranks, exact, 1e-10, (model, overrides))


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
        of_ranks = ranks(world_size)(distributed, cfg, kind, True)
        compare(of_ranks, expected(cfg, kind, True), 1e-8, kind)
