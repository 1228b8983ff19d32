"""The first product computed once: exact beside dense matrices, and the same training where nothing is drawn."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from fullgnn.distributed import world_of_one
from fullgnn.errors import UnsupportedError
from fullgnn.graph import Propagation
from fullgnn.models import GCN, GIN, SAGE
from fullgnn.nn import GCNConv, SAGEConv
from fullgnn.nn.contract import block_request
from fullgnn.sampling.precompute import Precomputed
from fullgnn.sampling.setup import set_up_sampled
from fullgnn.telemetry.meter import Meter
from tests.cases import config, dense_graph, minibatch_config
from tests.dense_block import block_of
from tests.oracle import normalize
from tests.sampling.training import case, run, same


@pytest.mark.parametrize("kind", ["directed", "weighted", "symmetric"])
@pytest.mark.parametrize("normalization", ["sym", "row", "none"])
@pytest.mark.parametrize("self_loops", [True, False])
def test_rows_are_the_products(kind: str, normalization: str, self_loops: bool) -> None:
    dense = dense_graph(kind)
    graph, features = dense.graph(), dense.graph().features.astype(np.float64)
    matrix = graph.adjacency(np.float64).toarray()
    expected = normalize(matrix, normalization, self_loops) @ features
    for powers in ((1,), (0, 1)):
        rows = Precomputed(Propagation(normalization, self_loops), powers).rows(graph, "float64")
        np.testing.assert_allclose(rows[:, -features.shape[1] :], expected, rtol=1e-12, atol=1e-13)
        if powers == (0, 1):
            np.testing.assert_array_equal(rows[:, : features.shape[1]], features)


def layer_formula(layer: torch.nn.Module, matrix: Tensor, h: Tensor) -> Tensor:
    """A layer with a skip connection, without activation."""
    conv, skip = layer.conv, h if isinstance(layer.skip, torch.nn.Identity) else h @ layer.skip.weight
    if isinstance(conv, GCNConv):
        return matrix @ h @ conv.linear.weight + conv.bias + skip
    if isinstance(conv, SAGEConv):
        return matrix @ h @ conv.neighbors.linear.weight + conv.neighbors.bias + h @ conv.root.weight + skip
    inner = (matrix @ h + (1 + conv.eps) * h) @ conv.first.weight + conv.first.bias
    return torch.relu(inner) @ conv.second.weight + conv.second.bias + skip


@pytest.mark.parametrize("width", [5, 6], ids=["identity", "matrix"])
@pytest.mark.parametrize("kind", ["directed", "weighted"])
@pytest.mark.parametrize("name", ["gcn", "sage", "gin"])
def test_skip_connections_are_their_formulas(name: str, kind: str, width: int) -> None:
    """The output and all gradients, in float64."""
    kinds = {"gcn": (GCN, "sym", True), "sage": (SAGE, "row", False), "gin": (GIN, "none", False)}
    dense, (make, *matrix_keys) = dense_graph(kind), kinds[name]
    torch.set_default_dtype(torch.float64)
    try:
        model = make(5, 3, hidden_channels=width, num_layers=2, dropout=0.0, residual=True, seed=4)
    finally:
        torch.set_default_dtype(torch.float32)
    precomputed = Precomputed.of(model, name)
    assert precomputed.powers == (0, 1)
    block = block_of(dense.adj, block_request(model, config().optimizations))
    rows = torch.from_numpy(precomputed.rows(dense.graph(), "float64"))
    factor = torch.randn(len(rows), 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    matrix, x = torch.from_numpy(normalize(dense.adj, *matrix_keys)), torch.from_numpy(dense.features)
    assert x.dtype == torch.float64
    expected = layer_formula(model.layers[1], matrix, torch.relu(layer_formula(model.layers[0], matrix, x)))
    outputs = model(precomputed.input(block, rows), [block, block]), expected
    torch.testing.assert_close(*outputs, rtol=1e-10, atol=1e-10)
    gradients = [torch.autograd.grad((output * factor).sum(), list(model.parameters())) for output in outputs]
    for gradient, other in zip(*gradients, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-10, atol=1e-10)


MODELS = {
    "gcn": ["model=gcn"],
    "sage": ["model=sage"],
    "gin": ["model=gin"],
    "gcn with a skip": ["model=gcn", "model.residual=true"],
    "sage with a skip": ["model=sage", "model.residual=true", "model.norm=layer"],
    "gin with a skip": ["model=gin", "model.residual=true", "model.hidden_channels=5"],  # as many as features
}
EVERY = {False: "sampler.fanouts=[-1,-1]", True: "sampler.fanouts=[-1]"}


@pytest.mark.sample(6)
@pytest.mark.parametrize("kind", ["directed", "weighted"])
@pytest.mark.parametrize("model", MODELS)
def test_with_all_neighbours_training_is_the_same(
    ranks,
    tmp_path: Path,
    graph_files: dict[str, Path],
    kind: str,
    model: str,
) -> None:
    results = {}
    for name, size, more in (
        ("plain", 1, [EVERY[False]]),
        ("once", 1, [EVERY[True], "loader.precompute=true"]),
        (
            "ranks",
            3,
            [EVERY[True], "loader.precompute=true", "loader.num_workers=1", "cache=exact", "cache.megabytes=1e-4"],
        ),
    ):
        keys = [*MODELS[model], "model.input_dropout=0", *more]
        results[name] = ranks(size)(run, case(graph_files[kind], tmp_path / name, *keys))[0]
    same(results["plain"], results["once"], 1e-9)
    same(results["once"], results["ranks"], 1e-9)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "more",
    [["sampler=layer", "sampler.sizes=[5]"], ["sampler.fanouts=[2]", "loader.split=pagraph"]],
    ids=["layer", "pagraph"],
)
def test_samples_have_a_hop_less_on_any_number_of_ranks(
    ranks,
    tmp_path: Path,
    graph_files: dict[str, Path],
    more: list[str],
) -> None:
    keys = ["model=gcn", "model.input_dropout=0", "loader.precompute=true", *more]
    results = [ranks(size)(run, case(graph_files["directed"], tmp_path / str(size), *keys))[0] for size in (1, 2)]
    if "loader.split=pagraph" not in more:
        same(*results, 1e-9)
    assert np.isfinite(results[1]["loss"]).all()


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        (["model=gat"], "it reads more of the features than A X"),
        (["model=gcn"], "dropout"),
        (["model=sgc"], "it reads more of the features than A X"),
    ],
)
def test_a_model_that_reads_more_is_one_line(keys: list[str], why: str) -> None:
    cfg = minibatch_config("runtime.device=cpu", "loader.precompute=true", *keys)
    with world_of_one(cfg.runtime) as world, pytest.raises(UnsupportedError) as caught:
        set_up_sampled(cfg, world, Meter(world.device))
    line = str(caught.value)
    assert (
        line.startswith(f"loader.precompute=true is not possible with {keys[0]}: ") and why in line and "\n" not in line
    )
