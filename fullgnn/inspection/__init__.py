"""A look at a graph before it is trained on: what it is, what leaks, what it takes, and what is odd about it."""

from typing import TYPE_CHECKING, Any

from fullgnn.inspection.findings import Inspection

if TYPE_CHECKING:
    from fullgnn.inspection.inspection import inspect

__all__ = ["Inspection", "inspect"]


def __getattr__(name: str) -> Any:
    if name == "inspect":  # imported on use: a report reads findings, and needs no planner
        from fullgnn.inspection.inspection import inspect

        return inspect
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
