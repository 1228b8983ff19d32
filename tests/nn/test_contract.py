"""What modules ask for: collected once each, in the order of the modules, and refused where it is not stated."""

import pytest
import torch

from fullgnn.engine.state import place_rows, sharded_names
from fullgnn.errors import ConfigError
from fullgnn.graph import EdgeSet, Propagation
from fullgnn.nn import BatchNorm, Contract, GATConv, GCNConv, LayerNorm, Linear, NodeEmbedding, SAGEConv, contract_of
from fullgnn.nn.contract import block_request, check_contract
from tests.cases import config

ROW, SYM = Propagation("row", self_loops=False), Propagation("sym", self_loops=True)


class Net(torch.nn.Module):
    """A plain module of a user, whose own products come before those of its layers."""

    def __init__(self, *layers: torch.nn.Module, contract: Contract):
        super().__init__()
        self.layers, self.stated = torch.nn.ModuleList(layers), contract

    def contract(self) -> Contract:
        return self.stated


def test_a_misspelt_field_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="num_block"):
        Contract(num_block=2)  # type: ignore[call-arg]


def test_a_module_without_a_contract_asks_for_nothing() -> None:
    assert contract_of(torch.nn.ReLU()) == Contract()


def test_needs_are_collected_once_in_the_order_of_the_modules() -> None:
    generator, optimizations = torch.Generator(), config().optimizations
    layers = [SAGEConv(3, 4, generator, "max"), GCNConv(4, 4, generator, "row", False), GATConv(4, 4, generator)]
    layers += [GCNConv(4, 4, generator), GCNConv(4, 4, generator, "row", False), LayerNorm(4)]
    request = block_request(Net(*layers, contract=Contract(num_blocks=5)), optimizations)
    assert request.propagations == (ROW, SYM) and request.num_blocks == 5 and not request.joins_rows
    assert request.edges == (EdgeSet(self_loops=False), EdgeSet(self_loops=True))
    own = Contract(num_blocks=1, propagations=(SYM,), edge_sets=(EdgeSet(self_loops=True),))
    request = block_request(Net(*layers, BatchNorm(4), contract=own), optimizations)
    assert request.propagations == (SYM, ROW) and request.joins_rows
    assert request.edges == (EdgeSet(self_loops=True), EdgeSet(self_loops=False))


def test_sharded_parameters_are_those_that_contracts_name() -> None:
    model = Net(Linear(3, 4, torch.Generator()), NodeEmbedding(4, 0), contract=Contract(num_blocks=1))
    assert sharded_names(model) == ["layers.1.weight"]
    place_rows(model, torch.arange(7))
    assert model.layers[1].weight.shape == (7, 4)


@pytest.mark.parametrize("number", [None, 0, -1, 1.5])
def test_a_model_without_a_number_of_blocks_is_one_line(number) -> None:
    with pytest.raises(ConfigError, match=rf"^Net.contract\(\) states num_blocks={number}: a model has one that retur"):
        check_contract(Net(contract=Contract(num_blocks=number)))
    with pytest.raises(
        ConfigError, match=r"^ReLU has no method contract\(\): a model has one that returns fullgnn.nn."
    ):
        check_contract(torch.nn.ReLU())
    check_contract(Net(contract=Contract(num_blocks=1)))
