"""Peak tensor memory."""

import numpy as np
import pytest
import torch

from fullgnn.engine.memory import TensorPeak, peak_process_bytes

MB = 1 << 20


def test_peak_counts_what_lives_at_one_time() -> None:
    peak = TensorPeak(torch.device("cpu"))
    weight = torch.zeros(MB // 4)  # 1 MB, there before
    with peak.watch(weight, weight.view(2, -1)):  # a view is not counted again
        a = weight + 1  # 1 MB more
        b = a[: len(a) // 2]  # a view
        del a, b
        c = weight.repeat(3)  # 3 MB
        del c
        weight.add_(1)  # in place
    assert peak.bytes == 4 * MB


def test_memory_that_several_tensors_are_made_of_counts_once() -> None:
    array = np.zeros(MB, np.uint8)
    peak = TensorPeak(torch.device("cpu"))
    with peak.watch(torch.from_numpy(array), torch.from_numpy(array)):
        pass
    assert peak.bytes == MB


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_sparse_blocks_count_their_three_arrays() -> None:
    block = torch.eye(1000).to_sparse_csr()
    parts = (block.crow_indices(), block.col_indices(), block.values())
    peak = TensorPeak(torch.device("cpu"))
    with peak.watch(block):
        pass
    assert peak.bytes == sum(part.untyped_storage().nbytes() for part in parts)


def test_gradients_and_activations_are_followed() -> None:
    x = torch.zeros(MB // 4, requires_grad=True)
    peak = TensorPeak(torch.device("cpu"))
    with peak.watch(x):
        (x * 2).relu().sum().backward()  # x, x*2, relu(x*2) and, in turn, their gradients
    assert 3 * MB <= peak.bytes <= 6 * MB


def test_process_peak_covers_what_was_touched() -> None:
    before = peak_process_bytes()
    np.ones(300 * MB, np.uint8).sum()
    assert peak_process_bytes() >= before
    assert peak_process_bytes() > 300 * MB
