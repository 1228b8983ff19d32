"""Which product comes first, in the forward pass and for the gradient of the input."""

import pytest
import torch

from fullgnn.models import SGC
from fullgnn.nn import SPMM_ORDERS, Contract, GCNConv, GINConv, Layer, set_spmm_order
from fullgnn.nn.product_order import asked_order, multiplies_gradient_first, propagates_first
from fullgnn.schemes import BlockProduct

WIDE, NARROW, SQUARE = (torch.empty(9, 3), torch.empty(3, 9), torch.empty(5, 5))


def test_a_given_order_holds_for_all_widths() -> None:
    for weight in (WIDE, NARROW, SQUARE):
        assert not propagates_first("transform", weight, asked=True)
        assert propagates_first("propagate", weight, asked=False)
    assert not multiplies_gradient_first("propagate", WIDE) and not multiplies_gradient_first("propagate", NARROW)


@pytest.mark.parametrize(
    ("weight", "backward", "first"),
    [
        (WIDE, (0, 0), False),
        (NARROW, (0, 0), True),
        (SQUARE, (0, 0), False),
        (torch.empty(5, 4), (0, 4), True),  # 5 < 8
        (torch.empty(5, 4), (4, 4), False),  # 9 > 8
        (torch.empty(4, 5), (4, 5), True),  # 8 < 10
    ],
)
def test_the_least_sum_of_columns_comes_first(weight: torch.Tensor, backward: tuple[int, int], first: bool) -> None:
    assert propagates_first("width", weight, backward=backward) is first
    with torch.no_grad():  # no gradient is computed
        assert propagates_first("width", weight, backward=backward) is (weight.shape[0] < weight.shape[1])


class Asks(BlockProduct):
    """A product that asks for A X first where X needs no gradient, and there are more columns than rows in W."""

    def __init__(self) -> None:
        pass

    def propagates_first(self, f: int, g: int, needs_input_gradient: bool) -> bool | None:
        return None if needs_input_gradient else f < g


def test_a_product_is_asked_unless_the_order_is_given() -> None:
    product = Asks()
    assert asked_order("width", NARROW, product, False) is True and asked_order("width", WIDE, product, False) is False
    assert asked_order("width", WIDE, product, True) is None
    for order in ("transform", "propagate"):
        assert asked_order(order, NARROW, product, False) is None
    assert propagates_first("width", WIDE, asked=True) and not propagates_first("width", NARROW, asked=False)
    assert multiplies_gradient_first("width", WIDE, asked=True)  # A^T multiplies G W^T, as a sampled product wants it


def test_the_narrower_gradient_is_multiplied() -> None:
    for weight, first in ((WIDE, False), (NARROW, True), (SQUARE, True)):
        assert multiplies_gradient_first("width", weight) is first


class Own(torch.nn.Module):
    """A user's layer, which reads the attribute, and one that has it for itself."""

    def __init__(self, reads: bool):
        super().__init__()
        self.reads, self.spmm_order = reads, "own"

    def contract(self) -> Contract:
        return Contract(orders_products=self.reads)


def test_the_order_is_set_where_a_contract_says_so() -> None:
    generator = torch.Generator()
    convs = [GCNConv(3, 4, generator), GINConv(3, 4, generator), SGC(3, 4), Own(True)]
    other = Own(False)
    model = torch.nn.Sequential(*convs[:2], Layer(convs[2]), convs[3], other)
    for order in SPMM_ORDERS:
        set_spmm_order(model, order)
        assert [conv.spmm_order for conv in convs] == [order] * 4 and other.spmm_order == "own"
