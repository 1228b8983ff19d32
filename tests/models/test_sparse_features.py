"""Models that multiply features as a sparse matrix give what they give with the dense one: dropout, loss, gradients."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from fullgnn.config import Config
from fullgnn.distributed import World
from fullgnn.engine import checks, set_up
from fullgnn.engine.run import build_model
from fullgnn.graph import Graph
from fullgnn.kernels.dense import sparse_rows
from fullgnn.kernels.dense.sparse_rows import SparseRows
from fullgnn.kernels.dropout.philox import Mask, drop
from fullgnn.kernels.epilogue.epilogue import IDENTITY, Activation
from fullgnn.kernels.spmm import TritonCSR
from fullgnn.kernels.support import aligned, gpu
from fullgnn.nn import contract_of
from fullgnn.nn.linear import linear
from fullgnn.telemetry.meter import Meter
from tests.cases import LAYOUTS, config, dense_graph
from tests.models.exactness import CASE, MODELS, OneProcess, case, compare, in_one_process, step
from tests.schemes.training import prepare
from tests.triton_device import DEVICE, needs_triton

SPARSE = "optimizations.sparse_features=true"
OPTIONS = [
    ("gcn", "model.norm=batch", "model.residual=true"),
    ("gcn", "model.input_dropout=0", "model.num_layers=1", "model.residual=true"),
    ("sage", "model.jumping_knowledge=cat", "model.num_layers=2"),
    ("gin", "model.norm=batch", "model.train_eps=true"),
    ("gatv2", "model.residual=true", "model.num_layers=1"),
    ("gcnii", "model.shared_weights=false", "model.input_dropout=0"),
    ("ngcn", "model.num_copies=2", "model.classifier=attention"),
]
NOT_SPARSE = [
    ("sage", "model.aggregation=max"),
    ("gcn", "model.embedding_channels=4"),
    ("gcn", "model.residual=true", "model.hidden_channels=23"),
    ("gcn", "optimizations.skip_input_gradient=false"),
]
"""Models that read more than products of the features, with a matrix of the graph that has sparse ones."""


def test_every_model_reads_sparse_rows() -> None:
    for model in MODELS:
        assert contract_of(build_model(config(f"model={model}"), 23, 3, torch.device("cpu"))).reads_sparse_rows, model


def sparse_step(world: World, cfg: Config) -> dict:
    _, scheme, job = prepare(world, cfg, "words")
    is_sparse = isinstance(job.graph.features, SparseRows)
    return step(job.model, job.graph, scheme) | {"is_sparse": np.array(is_sparse)}


def check(of_ranks: list[dict], cfg: Config, is_sparse: bool, of: object) -> None:
    model, graph = in_one_process(cfg, "words")
    exact = step(model, graph, OneProcess())
    exact.pop("embedding.weight", None)  # its rows lie on several ranks
    for rank in of_ranks:
        assert rank.pop("is_sparse") == is_sparse, of
        rank.pop("embedding.weight", None)
    compare(of_ranks, exact, 1e-12, of)


@pytest.mark.sample(39)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("world_size", "replication"), LAYOUTS)
def test_a_step_equals_that_with_dense_features(ranks, model: str, world_size: int, replication: int) -> None:
    cfg = case(model, "1d" if replication == 1 else "1.5d", replication, SPARSE)
    check(ranks(world_size)(sparse_step, cfg), cfg, True, model)


@pytest.mark.sample(8)
@pytest.mark.parametrize(("number", "is_sparse"), [*((n, True) for n in range(7)), *((n, False) for n in range(4))])
@pytest.mark.parametrize(("world_size", "replication"), [(1, 1), (4, 2)])
def test_options_equal_those_with_dense_features(
    ranks, number: int, is_sparse: bool, world_size: int, replication: int
) -> None:
    model, *overrides = (OPTIONS if is_sparse else NOT_SPARSE)[number]
    cfg = case(model, "1d" if replication == 1 else "1.5d", replication, *overrides, SPARSE)
    check(ranks(world_size)(sparse_step, cfg), cfg, is_sparse, overrides)


def kind_of(world: World, cfg: Config, graph: Graph, least_numbers: int) -> bool:
    before, checks.LEAST_NUMBERS = checks.LEAST_NUMBERS, least_numbers
    try:
        job = set_up(cfg, world, Meter(world.device), graph)
    finally:
        checks.LEAST_NUMBERS = before
    return isinstance(job.graph.features, SparseRows)


@pytest.mark.parametrize("given", ["dense", "sparse"])
@pytest.mark.parametrize(
    ("share", "chosen"),
    [(0.01, True), (0.2, False)],
)
def test_auto_measures_how_many_features_are_not_zero(ranks, given: str, share: float, chosen: bool) -> None:
    graph, rng = dense_graph("directed").graph(), np.random.default_rng(0)
    features = rng.standard_normal((29, 400)) * (rng.random((29, 400)) < share)
    graph = replace(graph, features=csr_array(features) if given == "sparse" else features)
    for overrides, wanted in [([], chosen), (["optimizations.sparse_features=false"], False), ([SPARSE], True)]:
        assert ranks(1)(kind_of, config("model=gcn", *CASE, *overrides), graph, 1) == [wanted]
    assert ranks(1)(kind_of, config("model=gcn", *CASE), graph, 29 * 400 + 1) == [False]  # too few numbers


def matrix(num_rows: int, num_columns: int, share: float, seed: int = 0) -> csr_array:
    rng = np.random.default_rng(seed)
    return csr_array(rng.standard_normal((num_rows, num_columns)) * (rng.random((num_rows, num_columns)) < share))


@pytest.mark.sample(3)
@pytest.mark.parametrize("shape", [(500, 333), (7, 4000), (4000, 3), (1, 1), (5, 0), (0, 5)])
@pytest.mark.parametrize("share", [0.0, 0.03, 1.0])
def test_products_and_gradients_are_those_of_the_dense_matrix(shape: tuple[int, int], share: float) -> None:
    given = matrix(*shape, share)
    x, dense = SparseRows.of(given, torch.float64, torch.device("cpu")), torch.from_numpy(given.toarray())
    assert torch.equal(x.to_dense(), dense)
    mask = Mask(torch.randperm(shape[0]) * 3, 0.3, 7, torch.tensor(5), 2)
    assert torch.equal(x.dropout(mask).to_dense(), drop(dense, mask))
    for width in (1, 3, 16, 41):
        weight = torch.randn(shape[1], width, dtype=torch.float64, requires_grad=True)
        bias = torch.randn(width, dtype=torch.float64, requires_grad=True)
        for activation in (IDENTITY, Activation(True), Activation(True, mask)):
            y, z = linear(x, weight, bias, activation), dense @ weight + bias
            if activation.relu:
                kept = drop(torch.ones_like(z), mask)
                z = z.relu() * (1 if activation.dropout is None else kept)
            torch.testing.assert_close(y, z)
            gradient = torch.randn_like(z)
            gradients, wanted = (torch.autograd.grad(product, (weight, bias), gradient) for product in (y, z))
            torch.testing.assert_close(gradients, wanted)


def on_gpu_code(world: World, shape: tuple[int, int], share: float) -> None:
    """Products, gradients and dropout by the kernels for a GPU, run by Triton's interpreter if none is visible."""
    device, before = world.device, gpu.INTERPRETED
    gpu.INTERPRETED = device.type == "cpu" and not torch.cuda.is_available()
    try:
        given = matrix(*shape, share)
        x, dense = SparseRows.of(given, torch.float64, device), torch.from_numpy(given.toarray()).to(device)
        weight = torch.randn(shape[1], 8, dtype=torch.float64, device=device, requires_grad=True)
        for epoch in (1, 2):
            mask = Mask(torch.arange(shape[0], device=device) * 3, 0.3, 7, torch.tensor(epoch, device=device), 2)
            dropped = drop(dense, mask)
            torch.testing.assert_close(x.dropout(mask).to_dense(), dropped, rtol=0, atol=0)
            y, z = linear(x.dropout(mask), weight, None, IDENTITY), dropped @ weight
            torch.testing.assert_close(y, z)
            gradient = torch.ones_like(z)
            gradients, wanted = (torch.autograd.grad(product, weight, gradient) for product in (y, z))
            torch.testing.assert_close(gradients, wanted)
    finally:
        gpu.INTERPRETED = before


@needs_triton
def test_a_gpu_reads_rows_that_begin_at_cache_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of weights and gradients are copied to such rows where they begin elsewhere."""
    monkeypatch.setattr(gpu, "INTERPRETED", DEVICE.type == "cpu")
    monkeypatch.setattr(aligned, "PADDED_DEVICES", ("cpu", "cuda"))
    read: list[torch.Tensor] = []
    multiply = TritonCSR.spmm

    def watched(kernel: TritonCSR, block: Any, x: torch.Tensor, *others: Any, **named: Any) -> None:
        read.append(x)
        multiply(kernel, block, x, *others, **named)

    monkeypatch.setattr(TritonCSR, "spmm", watched)
    monkeypatch.setattr(sparse_rows, "single_use_kernel", lambda device, dtype: TritonCSR())  # that of a GPU
    given = matrix(40, 33, 0.2)
    x, dense = SparseRows.of(given, torch.float64, DEVICE), torch.from_numpy(given.toarray()).to(DEVICE)
    for width in (41, 48):
        weight, gradient = (torch.randn(n, width, dtype=torch.float64, device=DEVICE) for n in (33, 40))
        torch.testing.assert_close(x.multiply(weight), dense @ weight)
        torch.testing.assert_close(x.multiply_t(gradient), dense.t() @ gradient)
        for given_rows, rows in zip((weight, gradient), read[-2:], strict=True):
            assert aligned.is_aligned(rows) and (rows.data_ptr() == given_rows.data_ptr()) == (width == 48)


@pytest.mark.parametrize(("shape", "share"), [((40, 33), 0.2), ((3, 70), 0.5), ((6, 5), 0.0)])
def test_the_kernels_for_a_gpu_give_the_same(ranks, shape: tuple[int, int], share: float) -> None:
    ranks(1)(on_gpu_code, shape, share)
