"""The device on which tests run Triton kernels: a GPU, or the CPU with Triton's interpreter (``conftest.py``)."""

import pytest
import torch

from fullgnn.kernels.support import gpu

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")

needs_triton = pytest.mark.skipif(not gpu.has_triton(), reason="Triton is not installed, or too old")
