"""The command line of an inspection: the keys of ``conf/inspect.yaml``, among those of a run."""

from dataclasses import dataclass, fields
from typing import Optional

from omegaconf import MISSING

from fullgnn.config.keys import load_keys


@dataclass
class InspectConfig:
    """The keys of ``conf/inspect.yaml``, which explains them."""

    out: Optional[str] = MISSING


def load_inspect(arguments: list[str]) -> tuple[InspectConfig, list[str]]:
    """The keys of the inspection among the ``arguments`` of the command line, and the keys of the run.

    Raises:
        ConfigError: one line that names the key, what is wrong with it and what it may be.
    """
    names = {field.name for field in fields(InspectConfig)}
    own = [argument for argument in arguments if argument.partition("=")[0] in names]
    return load_keys("inspect", InspectConfig, own), [argument for argument in arguments if argument not in own]
