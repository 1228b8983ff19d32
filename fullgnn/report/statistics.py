"""The statistics that a run has not counted: a report counts them from the prepared graph of the run, if it is kept.

The folder of the run stays as it is. The cache that has the prepared graph keeps the counts, for the next report and
for other runs of the same graph.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fullgnn.errors import FullGNNError, message_of, reason_of
from fullgnn.prepare.facts import off_diagonal_share
from fullgnn.prepare.statistics import Statistics, kept_statistics
from fullgnn.reorder.structure import Structure

Count = Callable[[Path, bool], Statistics | str]
"""``count``, perhaps one that remembers what it has returned."""


def count(folder: Path, self_loops: bool) -> Statistics | str:
    """The statistics of the prepared graph in ``folder``, or why there are none."""
    try:
        return kept_statistics(folder, self_loops)
    except Exception as error:  # a damaged layout.json may say anything, and the page is written all the same
        if not os.path.isdir(folder):
            return f"{folder.parent} does not have the prepared graph any more"
        return message_of(error) if isinstance(error, FullGNNError) else f"{folder}: {reason_of(error)}"


def statistics_of_run(record: Mapping[str, Any], settings: Mapping[str, str], count: Count) -> Statistics | str:
    """The statistics of the prepared graph that a run has left, or why there are none; empty if it has left no graph.

    Args:
        record: content of ``record.json``.
        settings: the dotted keys of ``config.yaml``.
    """
    prepared, self_loops = record.get("prepared"), settings.get("self_loops")
    if not prepared:
        return ""
    if self_loops not in ("true", "false"):
        return "config.yaml does not say whether there are self_loops"
    found = count(Path(str(prepared)), self_loops == "true")
    if isinstance(found, str) or _is_of(found.structure, record):
        return found
    return f"{prepared} does not hold the graph of the run any more"


def _is_of(structure: Structure, record: Mapping[str, Any]) -> bool:
    """Whether the blocks have the non-zeros and the cut of the run. The code of a partitioner is not part of a key."""
    nnz = structure.block_nnz
    return (nnz.sum(), off_diagonal_share(nnz)) == (record.get("nnz"), record.get("edge_cut"))
