"""The counts behind the F1 scores of classes, as a GPU computes them."""

from unittest import mock

import torch

from fullgnn.kernels.support import gpu
from fullgnn.tasks.metrics import UNKNOWN, class_f1_counts
from tests.gpu_code.host_waits import HostWaits
from tests.triton_device import DEVICE


def test_they_are_those_of_a_cpu_without_a_wait() -> None:
    """Also of nodes without a prediction, and of nodes outside the mask whose class is not known."""
    generator = torch.Generator().manual_seed(0)
    predicted, targets = (torch.randint(0, 5, (200,), generator=generator) for _ in range(2))
    mask = torch.rand(200, generator=generator) < 0.6
    predicted[::7] = UNKNOWN
    targets[~mask] = UNKNOWN
    for nodes in (mask, torch.zeros_like(mask)):
        expected = class_f1_counts(predicted, targets, nodes, 6)
        given = [tensor.to(DEVICE) for tensor in (predicted, targets, nodes)]
        with mock.patch.object(gpu, "AS_ON_GPU", True), HostWaits(given) as waits:
            counts = class_f1_counts(*given, 6)
        assert waits.counts == {} and torch.equal(counts.cpu(), expected)
        assert expected.sum() > 0 or nodes is not mask
