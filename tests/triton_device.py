"""The device on which tests run Triton kernels: a GPU, or the CPU with Triton's interpreter (``conftest.py``)."""

import importlib.util

import pytest
import torch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
