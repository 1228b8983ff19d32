"""The version of fullgnn."""

from configparser import ConfigParser
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def _version() -> str:
    """The version of this code: that of its checkout, or of the installed package; ``unknown`` where neither is there.

    The checkout goes first, because the metadata may be those of another copy that is installed.
    """
    checkout = ConfigParser(interpolation=None)
    checkout.read(Path(__file__).parents[1] / "setup.cfg")
    if checkout.get("metadata", "name", fallback=None) == "fullgnn":
        return checkout["metadata"]["version"]
    try:
        return version("fullgnn")
    except PackageNotFoundError:
        return "unknown"


__version__ = _version()
