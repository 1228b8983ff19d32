"""The help of a training command: what it does, its groups with their choices, its common keys, and examples."""

import re
import textwrap
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from fullgnn.config import conf_dir
from fullgnn.config.compose import compose
from fullgnn.config.schema import SCHEMAS
from fullgnn.telemetry.screen import WIDTH, folded_command

_KEYS = {
    "run_dir": "folder of the files of the run",
    "seed": "seed of the parameters, the dropout, the partition and the order",
    "model.hidden_channels": "width of the hidden layers",
    "model.num_layers": "number of layers",
    "model.dropout": "probability with which an input of a layer is dropped",
    "sampler.fanouts": "how many neighbours of a node are drawn, from the targets outwards",
    "loader.batch_size": "training nodes of a batch, over all processes together",
    "loader.num_workers": "processes that make batches ahead, for each rank",
    "optimizer.lr": "learning rate",
    "optimizer.weight_decay": "L2 penalty of the parameters",
    "train.epochs": "epochs to train",
    "train.patience": "stop after so many evaluations without a better one; 0: never",
    "train.checkpoint_every": "epochs between two checkpoints; 0: only a signal that stops the run writes one",
    "train.table": "the table at the end; full: with all measurements",
    "resume": "auto: go on from the latest checkpoint in run_dir, if there is one",
    "overwrite": "true: replace an earlier run in run_dir",
    "runtime.nproc": "processes on this machine; null: one for each visible GPU, or one",
    "runtime.device": "cpu, cuda, or auto: cuda where a GPU is visible",
    "runtime.cache_dir": "folder that keeps what later runs can use again, such as node orders",
}
"""The common keys of all training commands; a command shows those that it has."""

_FLAGS = {
    "-m, --multirun": "a sweep: one run for each combination of values that are separated by commas",
    "--cfg job": "print the configuration, and run nothing",
    "--config-dir=FOLDER": "add choices of your own",
    "-sc install=bash": 'tab completion: eval "$(fullgnn-train -sc install=bash)"',
    "--version": "print the version of fullgnn",
    "--hydra-help": "more flags",
}


def training_help(module: str, name: str, description: str, arguments: Sequence[str] = ()) -> str:
    """The help of ``python -m module``, which composes ``conf/<name>.yaml``.

    Args:
        description: the docstring of the module. Its first paragraph says what the command does, and its indented lines
            are the examples.
        arguments: of the command line, whose ``--config-dir`` adds choices.
    """
    paragraphs = description.strip().split("\n\n")
    examples = [line.strip() for line in description.splitlines() if line.startswith("    ")]
    flags = re.findall(r"(?:^|\n)(?:--config-dir|-cd)[=\n]([^\n]+)", "\n".join(arguments))
    folders = [conf_dir(), *map(Path, flags)]
    several, one_choice = {}, []
    for group, default in _defaults(name).items():
        choices = _choices(group, folders)
        if len(choices) > 2 or default not in ("default", "minibatch"):
            several[group] = ", ".join(f"{choice}*" if choice == default else choice for choice in choices)
        else:
            one_choice.append(group)
    return "\n".join(
        [
            *textwrap.wrap(" ".join(paragraphs[0].split()), WIDTH),
            "",
            f"    python -m {module} [GROUP=CHOICE ...] [GROUP.KEY=VALUE ...]",
            "",
            "Groups and their choices; * marks the default:",
            *_two_columns(several),
            *textwrap.wrap(
                f"Groups without a choice, which have keys alone: {', '.join(one_choice)}.",
                WIDTH,
                initial_indent="  ",
                subsequent_indent="  ",
            ),
            "",
            "Common keys with their defaults; docs/configuration.md has all of them:",
            *_two_columns(dict(_common_keys(name))),
            "",
            "Flags:",
            *_two_columns(_FLAGS),
            "",
            "Examples:",
            *(folded_command(example, WIDTH, "    ") for example in examples),
        ]
    )


def _defaults(name: str) -> dict[str, str | None]:
    """The default choice of each group of ``conf/<name>.yaml``."""
    entries: Any = OmegaConf.load(conf_dir() / f"{name}.yaml").defaults
    mappings = [entry for entry in entries if not isinstance(entry, str)]
    pairs = [(str(group), entry[group]) for entry in mappings for group in entry]
    hints = typing.get_type_hints(SCHEMAS[name])
    return {group: choice for group, choice in pairs if group in hints or group == "experiment"}


def _choices(group: str, folders: Sequence[Path]) -> list[str]:
    names = {path.stem for folder in folders for path in (folder / group).glob("*.yaml")}
    return sorted(names - {"base"})


def _common_keys(name: str) -> Iterator[tuple[str, str]]:
    composed = compose(name=name)
    for key, sentence in _KEYS.items():
        group = key.rpartition(".")[0]
        if group and group not in composed:
            continue
        value: Any = OmegaConf.to_container(composed).get(key)  # type: ignore[union-attr]
        if not (isinstance(value, str) and "${now" in value):
            value = OmegaConf.select(composed, key)
        spelled: dict[Any, str] = {None: "null", True: "true", False: "false"}
        text = spelled[value] if value is None or isinstance(value, bool) else str(value)
        yield f"{key}={re.sub(r'[$][{]now:.*[}]', 'TIME', text)}", sentence


def _two_columns(rows: dict[str, str]) -> list[str]:
    """Lines with the keys on the left and the values, which may fill several lines, on the right."""
    indent = 4 + max(map(len, rows))
    lines = []
    for left, right in rows.items():
        first, *rest = textwrap.wrap(right, WIDTH - indent, break_on_hyphens=False)
        lines += [f"  {left}".ljust(indent) + first, *(" " * indent + line for line in rest)]
    return lines
