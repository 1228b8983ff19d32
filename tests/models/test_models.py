"""Models in one process, without a distributed job."""

import itertools

import pytest
import torch

from fullgnn.errors import ConfigError
from fullgnn.models import GCN, MLP
from fullgnn.nn import Dropout, GCNConv, Layer, Linear, contract_of, set_epoch
from fullgnn.schemes import Block
from tests.dense_block import dense_block


@pytest.fixture
def block() -> Block:
    return dense_block(torch.rand(6, 6, generator=torch.Generator().manual_seed(0)))


@pytest.mark.parametrize("model", [GCN, MLP])
@pytest.mark.parametrize("num_layers", [1, 2, 4])
def test_shapes_and_depth(model: type, num_layers: int, block: Block) -> None:
    network = model(5, 3, hidden_channels=7, num_layers=num_layers)
    assert network(torch.rand(6, 5), [block] * contract_of(network).num_blocks).shape == (6, 3)
    widths = [5, *[7] * (num_layers - 1), 3]
    expected = sum(a * b + b for a, b in itertools.pairwise(widths))
    assert sum(parameter.numel() for parameter in network.parameters()) == expected


def test_an_mlp_is_a_gcn_on_the_identity() -> None:
    block = dense_block(torch.eye(6))
    x = torch.rand(6, 5)
    gcn, mlp = GCN(5, 3, dropout=0.3, seed=4), MLP(5, 3, dropout=0.3, seed=4)
    torch.testing.assert_close(gcn(x, [block] * 2), mlp(x, [block]))


def test_seed_decides_the_weights_and_precision_rounds_them() -> None:
    first, same, other = GCN(5, 3, seed=1), GCN(5, 3, seed=1), GCN(5, 3, seed=2)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), same.parameters()))
    assert not torch.equal(first.layers[0].conv.linear.weight, other.layers[0].conv.linear.weight)
    torch.set_default_dtype(torch.float64)
    try:
        double = GCN(5, 3, seed=1)
    finally:
        torch.set_default_dtype(torch.float32)
    assert double.layers[0].conv.linear.weight.dtype == torch.float64
    assert torch.equal(double.layers[0].conv.linear.weight.float(), first.layers[0].conv.linear.weight)


def test_dropout_follows_epoch_and_layer_and_rests_in_evaluation(block: Block) -> None:
    model = GCN(5, 3, dropout=0.5, seed=1)
    x = torch.rand(6, 5)
    set_epoch(model, 1)
    first = model(x, [block] * 2)
    set_epoch(model, 2)
    second = model(x, [block] * 2)
    set_epoch(model, 1)
    assert not torch.equal(first, second)
    assert torch.equal(first, model(x, [block] * 2))
    model.eval()
    assert torch.equal(model(x, [block] * 2), GCN(5, 3, dropout=0.0, seed=1)(x, [block] * 2))
    masks = [Dropout(0.5, layer, seed=1)(torch.ones(50, 8), torch.arange(50)) for layer in (0, 1)]
    assert not torch.equal(*masks)


def test_input_dropout_is_its_own() -> None:
    def rates(model: GCN) -> list[float]:
        return [model.dropout.p, *(layer.dropout.p for layer in model.layers if layer.dropout is not None)]

    assert rates(GCN(5, 3, num_layers=3, dropout=0.4)) == [0.4, 0.4, 0.4]
    assert rates(GCN(5, 3, num_layers=3, dropout=0.4, input_dropout=0.0)) == [0.0, 0.4, 0.4]


@pytest.mark.parametrize(
    "wrong", [{"dropout": 1.0}, {"dropout": -0.1}, {"input_dropout": 1.5}, {"num_layers": 0}, {"hidden_channels": 0}]
)
def test_a_value_out_of_range_is_named(wrong: dict) -> None:
    with pytest.raises(ConfigError, match=f"model.{next(iter(wrong))}="):
        GCN(5, 3, **wrong)


@pytest.mark.parametrize("make", [GCNConv, Linear])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("drops", [False, True])
def test_a_layer_that_fuses_is_its_parts(make: type, relu: bool, drops: bool, block: Block) -> None:
    x = torch.randn(6, 5, generator=torch.Generator().manual_seed(1))

    def outcome(fuses: bool) -> list[torch.Tensor]:
        dropout = Dropout(0.5, layer=1, seed=3) if drops else None
        layer = Layer(make(5, 3, torch.Generator().manual_seed(2)), torch.nn.ReLU() if relu else None, dropout)
        layer.fuses_activation = layer.fuses_activation and fuses
        given = x.clone().requires_grad_()
        y = layer(given, block)
        (y * torch.arange(18).view(6, 3)).sum().backward()
        return [y.detach(), given.grad, *(parameter.grad for parameter in layer.parameters())]

    for fused, parts in zip(outcome(True), outcome(False), strict=True):
        torch.testing.assert_close(fused, parts)


def test_the_mask_of_a_layer_is_that_of_its_targets() -> None:
    """A block with fewer targets drops the same elements of them, fused or not."""
    whole = dense_block(torch.eye(6))
    index = torch.tensor([1, 4])
    some = dense_block(torch.eye(6), targets=index)
    x = torch.ones(6, 8)
    for fuses in (True, False):
        layer = Layer(GCNConv(8, 8, torch.Generator().manual_seed(0)), torch.nn.ReLU(), Dropout(0.5, 1, 3))
        layer.fuses_activation = layer.fuses_activation and fuses
        assert torch.equal(layer(x, some), layer(x, whole)[index])
