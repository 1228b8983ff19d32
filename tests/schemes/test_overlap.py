"""The order of communication and multiplication within one product, without processes."""

import numpy as np
import pytest
import torch

from fullgnn.meter import Meter
from fullgnn.schemes.one_and_half_d import _Adjacency, _Stage


class _RecordingAxis:
    """An axis whose broadcasts only leave a trace."""

    size = 4

    def __init__(self, trace: list[str], index: int):
        self.trace, self.index, self.meter = trace, index, Meter(torch.device("cpu"))

    def broadcast(self, tensor: torch.Tensor, source: int):
        self.trace.append(f"start {source}")
        axis = self

        class Pending:
            def wait(self) -> torch.Tensor:
                axis.trace.append(f"wait {source}")
                if source != axis.index:
                    tensor.fill_(source)  # what would have arrived
                return tensor

        return Pending()

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        self.trace.append("reduce")
        return tensor


class _RecordingKernel:
    def __init__(self, trace: list[str]):
        self.trace = trace

    def spmm(self, block: torch.Tensor, x: torch.Tensor, out: torch.Tensor, accumulate: bool) -> None:
        self.trace.append("multiply")
        product = block @ x
        out.copy_(out + product if accumulate else product)


@pytest.fixture
def adjacency() -> tuple[_Adjacency, list[str]]:
    trace: list[str] = []
    adj = object.__new__(_Adjacency)
    adj._row_axis, adj._replica_axis = _RecordingAxis(trace, index=1), _RecordingAxis(trace, index=0)
    adj._kernel, adj._meter = _RecordingKernel(trace), Meter(torch.device("cpu"))
    adj._max_rows, adj._buffers = 3, {}
    return adj, trace


def test_the_next_broadcast_is_in_flight_while_a_block_multiplies(adjacency) -> None:
    adj, trace = adjacency
    stages = [_Stage(j, rows, torch.ones(2, rows)) for j, rows in enumerate((3, 2, 3, 1))]
    x = torch.full((2, 4), 10.0)
    out = adj.multiply(x, stages)
    assert trace == [
        "start 0", "start 1", "wait 0", "multiply",
        "start 2", "wait 1", "multiply",
        "start 3", "wait 2", "multiply",
        "wait 3", "multiply",
        "reduce",
    ]  # fmt: skip
    np.testing.assert_array_equal(out.numpy(), np.full((2, 4), 3 * 0 + 2 * 10 + 3 * 2 + 1 * 3))
    assert torch.equal(x, torch.full((2, 4), 10.0))  # the sent rows are left alone


def test_a_block_without_non_zeros_is_received_but_not_multiplied(adjacency) -> None:
    adj, trace = adjacency
    out = adj.multiply(torch.ones(2, 4), [_Stage(0, 3, None), _Stage(2, 3, torch.ones(2, 3))])
    assert trace == ["start 0", "start 2", "wait 0", "wait 2", "multiply", "reduce"]
    assert torch.equal(out, torch.full((2, 4), 6.0))


def test_a_replica_without_stages_contributes_zero(adjacency) -> None:
    adj, trace = adjacency
    assert torch.equal(adj.multiply(torch.ones(2, 4), []), torch.zeros(2, 4))
    assert trace == ["reduce"]
