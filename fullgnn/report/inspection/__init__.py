"""A look at a graph before it is trained on: what it is, what leaks, what it takes, and what is odd about it."""

from typing import TYPE_CHECKING

from fullgnn.room import import_on_use

if TYPE_CHECKING:
    from fullgnn.report.inspection.findings import Inspection
    from fullgnn.report.inspection.inspection import inspect

__all__ = ["Inspection", "inspect"]

import_on_use(__name__)
