"""Where kernels in Triton are tested: compiled on a GPU, else by Triton's interpreter on the CPU (``conftest.py``)."""

import importlib.util

import pytest
import torch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
