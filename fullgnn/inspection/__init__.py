"""A look at a graph before it is trained on: what it is, what leaks, what it takes, and what is odd about it."""

from fullgnn.inspection.findings import Inspection
from fullgnn.inspection.inspection import inspect

__all__ = ["Inspection", "inspect"]
