"""Helpers that test_launch.py shares with other test modules."""

from typing import Any

from fullgnn.config import RuntimeConfig


def runtime(**changes: Any) -> RuntimeConfig:
    defaults = {"nproc": None, "device": "cpu", "backend": "auto", "dtype": "float32", "threads": None, "timeout_s": 30}
    return RuntimeConfig(**(defaults | changes))
