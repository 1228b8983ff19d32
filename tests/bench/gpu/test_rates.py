"""Timing takes several inputs in turn, together larger than the cache, so that the cache holds none of them."""

import pytest
import torch

from fullgnn.bench.gpu.rates import L2_MULTIPLE, l2_bytes, num_inputs, rotated, time_on_device
from fullgnn.distributed import world_of_one

CPU = torch.device("cpu")


def test_inputs_exceed_the_cache():
    l2 = 60 << 20
    for num_bytes in (1000, 7 << 20, 45 << 20, 125 << 20, 10 << 30):
        count = num_inputs(num_bytes, l2)
        others = (count - 1) * num_bytes  # bytes that are read between two uses of one input
        assert count >= 2 and (others >= L2_MULTIPLE * l2 or count == 64)
    assert num_inputs(10 << 30, l2) == 2


def test_rotated_inputs_differ_and_lie_as_in_training():
    inputs = rotated(100, 41, CPU)
    assert len(inputs) == num_inputs(100 * 48 * 4, l2_bytes(CPU))
    assert len({x.data_ptr() for x in inputs}) == len(inputs)
    assert all(x.shape == (100, 41) and x.stride() == (48, 1) for x in inputs)
    assert not torch.equal(inputs[0], inputs[1])
    assert torch.equal(inputs[0], rotated(100, 41, CPU)[0])  # the seed is fixed


def test_every_input_is_used_in_turn():
    seen = []
    with world_of_one(CPU) as world:
        measured = time_on_device("append", seen.append, [0, 1, 2], world, case={"width": 1})
    assert seen == [0, 1] and measured.times.runs == 2
    assert measured.method.case == {"width": 1} and measured.values == []


@pytest.mark.gpu
def test_what_the_gpu_does_is_timed():
    device = torch.device("cuda")
    small, large = ([torch.ones(size, device=device)] * 2 for size in (1 << 20, 1 << 28))
    with world_of_one(device) as world:
        quick, slow = (time_on_device("neg", torch.neg, inputs, world).median_ms for inputs in (small, large))
    assert 1e-4 < quick < 0.2 * slow
