"""The command ``python -m fullgnn.inspect``, whose keys are those of ``conf/inspect.yaml``, among those of a run."""

import logging
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Optional

from omegaconf import MISSING

from fullgnn.config.compose import compose, load_config
from fullgnn.config.keys import help_with_keys, load_keys
from fullgnn.distributed import check_tasks
from fullgnn.distributed.command import run_command
from fullgnn.errors import ConfigError
from fullgnn.graph import load_dataset
from fullgnn.graph.datasets import check_dataset
from fullgnn.report.inspection.findings import Inspection
from fullgnn.report.inspection.inspection import look_at, run_for
from fullgnn.report.inspection.page import page
from fullgnn.storage.folder import make_folder, write_text, writing_to
from fullgnn.storage.record import strict_json
from fullgnn.telemetry.screen import screen_width

log = logging.getLogger("fullgnn.inspect")

HELP = """Look at a graph before it is trained on.

    python -m fullgnn.inspect dataset=cora
    python -m fullgnn.inspect dataset=npz dataset.path=mine.npz out=mine.json
    python -m fullgnn.inspect dataset=reddit-like model=gat

It shows sizes, degrees, components, classes by part of the split, homophily, what leaks from test to training nodes,
what a rank would hold on 1, 2, 4 and 8 ranks, and what is odd. From Python: fullgnn.inspect(graph). Other keys are
those of the run whose memory is planned.
"""


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


def run(arguments: list[str]) -> Inspection:
    """Inspect the dataset that the ``arguments`` of the command line name, and print and write what was found.

    Raises:
        FullGNNError: a user error.
    """
    keys, overrides = load_inspect(arguments)
    if not any(override.partition("=")[0] == "dataset" for override in overrides):
        raise ConfigError("no graph is named: give dataset=..., or --help")
    cfg = load_config(compose(*overrides))
    check_tasks(cfg.runtime, one_process=True)
    if keys.out is not None:
        make_folder(Path(keys.out).absolute().parent)
        if Path(keys.out).is_dir():
            raise ConfigError(f"out={keys.out} is a folder: give a file, such as out={keys.out}/inspection.json")
    check_dataset(cfg.dataset)
    graph = load_dataset(cfg.dataset)
    inspection = look_at(graph, run_for(graph, overrides))
    log.info("\n%s", page(inspection, screen_width()))
    if keys.out is not None:
        with writing_to("out", keys.out):
            write_text(Path(keys.out), strict_json(inspection.to_json(), indent=2) + "\n")
        log.info("%s", Path(keys.out).absolute())
    return inspection


def main() -> None:
    """The command line."""
    run_command(run, lambda: help_with_keys(HELP, "inspect"))
