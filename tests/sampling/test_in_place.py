"""Features that the first layer reads on the host: the numbers are those of gathered features, to the bit."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fullgnn.distributed import world_of_one
from fullgnn.graph import Propagation
from fullgnn.models.stack import Stack
from fullgnn.nn import Activation, Contract, Dropout
from fullgnn.nn.sage_conv import MEAN
from fullgnn.sampling.blocks import BlockMaker
from fullgnn.sampling.features import InPlace
from fullgnn.sampling.setup import set_up_sampled
from fullgnn.schemes import BlockRequest
from fullgnn.schemes.inputs import InputRows
from fullgnn.telemetry.meter import Meter
from tests.cases import minibatch_config
from tests.sampling.blocks import CPU, NUM_FEATURES, Case, dense_product
from tests.sampling.training import case, run

FANOUTS = "sampler.fanouts=[4,3]"
READING = {
    "sage": ["model=sage", "model.input_dropout=0", FANOUTS],
    "sage, wide": ["model=sage", "model.input_dropout=0", "model.hidden_channels=1", FANOUTS],  # A (H W) is cheaper
    "sage, norm": ["model=sage", "model.input_dropout=0", "model.norm=layer", "model.jumping_knowledge=cat", FANOUTS],
    "sage, layers": ["model=sage", "model.input_dropout=0", "sampler=layer", "sampler.sizes=[6,9]"],
    "sage, clusters": ["model=sage", "model.input_dropout=0", "sampler=cluster", "sampler.num_clusters=7"],
    "gcn": ["model=gcn", "model.input_dropout=0", FANOUTS],
    "gcn, transform": ["model=gcn", "model.input_dropout=0", "model.hidden_channels=1", FANOUTS],
    "gcn, scaled": ["model=gcn", "model.input_dropout=0", "model.self_loops=false", FANOUTS],
    "sage, residual": ["model=sage", "model.input_dropout=0", "model.residual=true", FANOUTS],
    "gcn, residual": ["model=gcn", "model.input_dropout=0", "model.residual=true", FANOUTS],
    "gcn, residual as wide": [
        "model=gcn",
        "model.residual=true",
        "model.hidden_channels=5",
        "model.input_dropout=0",
        FANOUTS,
    ],
    "gcn, clusters": ["model=gcn", "model.input_dropout=0", "sampler=cluster", "sampler.num_clusters=7"],
}
NOT_READING = {
    "input dropout": ["model=sage", FANOUTS],
    "maximum": ["model=sage", "model.input_dropout=0", "model.aggregation=max", FANOUTS],
    "gin": ["model=gin", "model.input_dropout=0", FANOUTS],
    "gat": ["model=gat", "model.input_dropout=0", FANOUTS],
    "cache": ["model=sage", "model.input_dropout=0", "cache=degree", FANOUTS],
    "codec": ["model=sage", "model.input_dropout=0", "codec=bfloat16", FANOUTS],
    "precompute": ["model=sage", "model.input_dropout=0", "loader.precompute=true", "sampler.fanouts=[3]"],
}
COUNTS = "input_rows", "fetched_bytes", "hit_rate", "sampled_edges"


def result(ranks: Any, size: int, path: Path, folder: Path, keys: list[str]) -> dict[str, Any]:
    return ranks(size)(run, case(path, folder, "train.checkpoint_every=1", *keys))[0]


CONTRACT = Stack.contract


def reads_copies(model: Stack) -> Contract:
    return replace(CONTRACT(model), reads_input_rows=False)


@pytest.mark.sample(24)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["directed", "weighted"])
@pytest.mark.parametrize("name", READING)
def test_training_is_that_with_gathered_features(
    tmp_path: Path,
    graph_files: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    kind: str,
    dtype: str,
) -> None:
    keys, results = [*READING[name], f"runtime.dtype={dtype}", "loader.batch_size=7", "runtime.device=cpu"], []
    for folder in ("in place", "gathered"):
        cfg = case(graph_files[kind], tmp_path / folder, "train.checkpoint_every=1", *keys)
        with world_of_one(cfg.runtime) as world:
            results.append(run(world, cfg))
        monkeypatch.setattr(Stack, "contract", reads_copies)
    assert results[0]["loss"] == results[1]["loss"] and torch.equal(results[0]["model"], results[1]["model"])
    for key in COUNTS:
        assert results[0]["record"]["sampling"][key] == results[1]["record"]["sampling"][key]


@pytest.mark.sample(2)
@pytest.mark.parametrize("keys", [["loader.num_workers=2"], ["loader.split=pagraph"]], ids=["workers", "pagraph"])
def test_ranks_and_workers(ranks, tmp_path: Path, graph_files: dict[str, Path], keys: list[str]) -> None:
    path, keys = graph_files["directed"], [*READING["sage"], *keys]
    in_place = result(ranks, 2, path, tmp_path / "in place", keys)
    gathered = result(ranks, 2, path, tmp_path / "gathered", [*keys, "cache=degree", "cache.megabytes=0"])
    assert in_place["loss"] == gathered["loss"] and torch.equal(in_place["model"], gathered["model"])
    for key in COUNTS:
        assert in_place["record"]["sampling"][key] == gathered["record"]["sampling"][key]


@pytest.mark.parametrize("name", [*READING, *NOT_READING])
def test_which_models_read_in_place(name: str, graph_files: dict[str, Path], tmp_path: Path) -> None:
    cfg = case(graph_files["directed"], tmp_path, *{**READING, **NOT_READING}[name], "runtime.device=cpu")
    with world_of_one(cfg.runtime) as world:
        with closing(set_up_sampled(cfg, world, Meter(CPU)).loader) as loader:
            assert isinstance(loader.features, InPlace) == (name in READING)
            batch = next(loader.epoch(1))
    if name in READING:
        assert isinstance(batch.x, InputRows) and batch.x.tensors()[0] in batch.tensors()
        assert torch.equal(batch.x.index, batch.blocks[0].source_id.int())


def test_a_slot_of_a_worker_has_no_features() -> None:
    slot_bytes = {}
    for cache in ("none", "degree"):
        keys = f"cache={cache}", "model=sage", "model.input_dropout=0", "loader.num_workers=1", "runtime.device=cpu"
        cfg = minibatch_config(*keys)
        with world_of_one(cfg.runtime) as world:
            with closing(set_up_sampled(cfg, world, Meter(CPU)).loader) as loader:
                assert loader.arrivals is not None
                (slot_bytes[cache],) = (size for _, size in loader.arrivals.workers.memory())
    assert slot_bytes["none"] < 0.8 * slot_bytes["degree"]


@pytest.mark.parametrize("weighted", [False, True], ids=["pattern", "weights"])
@pytest.mark.parametrize("relu", [False, True], ids=["linear", "relu"])
def test_layers_and_gradients_against_dense_matrices(weighted: bool, relu: bool) -> None:
    """[A X | X_t] W + b of float64, and its gradients, of a matrix of the sources and of rows where they lie."""
    graph = Case.of(weighted)
    request, rng = BlockRequest((MEAN,)), torch.Generator().manual_seed(2)
    hops = graph.sampler([3, 4]).sample(np.arange(0, 40, 2), 2)
    (block, _), hop = (
        BlockMaker(graph.host(request), request, torch.float64, CPU).blocks(hops, np.arange(0, 40, 2)),
        hops[1],
    )
    dense = torch.from_numpy(dense_product(graph, hop, Propagation("row", self_loops=False)))
    features = torch.tensor(graph.graph.features).double()
    weight = torch.randn(2 * NUM_FEATURES, 5, dtype=torch.float64, generator=rng).requires_grad_()
    bias = torch.randn(5, dtype=torch.float64, generator=rng).requires_grad_()
    mask = Dropout(0.3, 1, 4).mask(block.own_id) if relu else None
    factor = torch.randn(hop.num_targets, 5, dtype=torch.float64, generator=rng)

    def gradients(y: Tensor, *of: Tensor) -> list[Tensor]:
        return [y.detach(), *torch.autograd.grad((y * factor).sum(), of)]

    x = features[block.source_id].requires_grad_()
    at_targets = x[torch.from_numpy(hop.target_index).long()]
    wanted = torch.cat([dense @ x, at_targets], dim=1) @ weight + bias
    if mask is not None:
        kept = mask_of(mask, wanted)
        wanted = wanted.relu() * kept
    gathered = block.product(MEAN).linear_beside(x, block, weight, bias, Activation(relu, mask))
    rows = InputRows(features, block.source_id.int())
    read = block.product(MEAN).linear_beside(rows, block, weight, bias, Activation(relu, mask))
    assert gathered is not None and read is not None
    exact = gradients(wanted, x, weight, bias)
    for gradient, other in zip(gradients(gathered, x, weight, bias), exact, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-11, atol=1e-12)
    assert torch.equal(read, gathered)
    for gradient, other in zip(gradients(read, weight, bias)[1:], exact[2:], strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-11, atol=1e-12)


def mask_of(mask: Any, like: Tensor) -> Tensor:
    """What dropout multiplies a matrix of ones by."""
    from fullgnn.kernels.dropout.philox import drop_

    return drop_(torch.ones_like(like), mask)
