"""Fixtures that write small folders of published datasets."""

from tests.graph.datasets.ogb import write_binary, write_proteins, write_text
from tests.graph.datasets.reddit import write

__all__ = ["write", "write_binary", "write_proteins", "write_text"]
