"""The record of one part: a tree of results, written to ``<part>.json`` and, as a page, to ``<part>.md``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fullgnn.bench.gpu.page import make_page
from fullgnn.bench.gpu.tunables import TUNING_FILE, tuning_text
from fullgnn.storage.folder import write_text
from fullgnn.storage.record import strict_json

NOT_MEASURED = "not measured (interpreter)"
_TIMES = ("_ms", "_s", "_gb_s", "_tflop_s", "_per_second", "_seconds", "speed_up", "_of_gather_rate")
"""Ends of the keys whose values are times, or are made from times."""


@dataclass(frozen=True)
class Check:
    """One test, or the sum of several, as the list ``checks`` of a record holds it."""

    subject: str
    what: str
    case: str = ""  # which tests, or how many
    passed: bool = False
    said: str = ""  # why it failed


class Record:
    """A tree of results.

    Args:
        folder: where its files go; made here.
        part: their name; the part ``products`` also writes the tuning file of the sweep's winners.
        measured: whether times mean anything; otherwise every time is written as not measured.
    """

    def __init__(self, folder: Path, part: str, measured: bool):
        self._folder, self._part, self._measured = folder, part, measured
        self.tree: dict[str, Any] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def put(self, path: list[str], value: Any) -> None:
        """Set the leaf at ``path``, and make the nodes on the way."""
        self._node(path[:-1])[path[-1]] = value

    def add(self, path: list[str], value: Any) -> None:
        """Append to the list at ``path``."""
        self._node(path[:-1]).setdefault(path[-1], []).append(value)

    def write(self) -> None:
        """Write all files, each in one step: they are whole whenever the program ends."""
        tree = self.tree if self._measured else _without_times(self.tree)
        texts = {f"{self._part}.json": strict_json(tree, indent=1) + "\n", f"{self._part}.md": make_page(tree)}
        if self._part == "products":
            texts[TUNING_FILE] = tuning_text(tree.get("sweep", []), tree.get("gpu", {}).get("name"))
        for name, text in texts.items():
            write_text(self._folder / name, text)

    def _node(self, way: list[str]) -> dict[str, Any]:
        node = self.tree
        for key in way:
            node = node.setdefault(key, {})
        return node


def _without_times(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_times(child) for child in node]
    if not isinstance(node, dict):
        return node
    return {key: NOT_MEASURED if key.endswith(_TIMES) else _without_times(child) for key, child in node.items()}
