"""Fixtures of the tests of operations on edges."""

import pytest
import torch

from fullgnn.kernels.edges import _rows_cpu, paths
from tests.triton_device import needs_triton


@pytest.fixture(params=["compiled", "torch", pytest.param("triton", marks=needs_triton)])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The implementation under test: compiled loops in several chunks of rows, torch operations, or Triton."""
    monkeypatch.setattr(_rows_cpu, "MIN_SHARED_EDGES", 1)
    torch.set_num_threads(2)
    if request.param == "torch":
        monkeypatch.setattr(paths, "path_of", lambda x: "torch")
    if request.param == "triton":
        request.getfixturevalue("triton_on_cpu")
    return request.param
