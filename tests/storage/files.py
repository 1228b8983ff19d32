"""Helpers that test_folder.py shares with other test modules."""

from pathlib import Path


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
