"""Rewrite overrides: from the command line for Hydra, from a job for its ranks, and from values of Python."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hydra.conf import HydraConf
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from fullgnn.errors import ConfigError

SWEEP_REPORT = "+hydra.callbacks.sweep._target_=fullgnn.report.sweep.SweepReport"
"""What the command line of a sweep is given, so that Hydra calls ``SweepReport`` before and after its jobs."""


def defer_keys_of_swept_groups(arguments: list[str]) -> list[str]:
    """Rewrite keys below a swept group so that Hydra accepts ``-m dataset=cora,pubmed dataset.root=...``.

    Hydra first composes a sweep without its swept overrides, so with the default dataset, and refuses a key that only
    the swept choices have. Hydra applies a one-element sweep, ``dataset.root=choice(...)``, to the jobs only; this
    function rewrites the keys below a swept group into that form. Other arguments are returned unchanged.
    """
    if not {"-m", "--multirun"} & set(arguments):
        return arguments
    parser = OverridesParser.create()
    parsed = {}
    for argument in arguments:
        try:
            parsed[argument] = parser.parse_override(argument)
        except HydraException:
            continue  # a flag, or an error that Hydra reports better
    swept = tuple(f"{override.key_or_group}." for override in parsed.values() if override.is_sweep_override())
    return [
        f"{argument.partition('=')[0]}=choice({parsed[argument].get_value_element_as_str()})"
        if argument in parsed
        and parsed[argument].key_or_group.startswith(swept)
        and not parsed[argument].is_sweep_override()
        and parsed[argument].value() is not None  # Hydra has no choice(null), and ~key has no value
        else argument
        for argument in arguments
    ]


def worker_arguments(launcher: HydraConf, run_dir: str) -> list[str]:
    """The command-line arguments with which a rank composes the configuration of this job."""
    flags = {"main": "--config-path", "command-line": "--config-dir"}
    sources = [source for source in launcher.runtime.config_sources if source.provider in flags]
    overrides = [override for override in launcher.overrides.task if not override.lstrip("+").startswith("run_dir=")]
    return [
        *(f"{flags[source.provider]}={source.path}" for source in sources),
        f"--config-name={launcher.job.config_name}",
        *(override for override in launcher.overrides.hydra if override.startswith("hydra.searchpath=")),
        *overrides,
        f"run_dir={quote(run_dir)}",
    ]


def quote(text: str, mark: str = "'") -> str:
    """Quote ``text`` as one value of Hydra's override grammar, where a backslash is special before a quote only.

    Args:
        mark: the quote, a single or a double one.
    """
    doubled = re.sub(rf"(\\*)({mark}|\Z)", lambda match: 2 * match[1] + match[2].replace(mark, f"\\{mark}"), text)
    return f"{mark}{doubled}{mark}"


def as_overrides(settings: Iterable[str | Mapping[str, Any]]) -> list[str]:
    """Settings given in Python as overrides.

    A string is an override already. A mapping has keys, such as ``train.epochs``, and their values. A group, which is a
    key without a dot, has its choice, a string, or a mapping of its own keys. In such a mapping ``name`` is the choice,
    except in ``dataset``, where it names the graph:

        {"model": {"name": "sage", "hidden_channels": 64}, "train.epochs": 50}

    Raises:
        ConfigError: a setting or a value has a type that no key takes.
    """
    overrides = []
    for setting in settings:
        if isinstance(setting, str):
            overrides.append(setting)
            continue
        if not isinstance(setting, Mapping):
            raise ConfigError(
                f"a setting has the type {type(setting).__name__}: write it as 'train.epochs=50' or"
                " {'train.epochs': 50}"
            )
        for key, value in setting.items():
            in_group = isinstance(value, Mapping) and "." not in key
            keys = {_key_below(key, name): below for name, below in value.items()} if in_group else {key: value}
            overrides += [f"{name}={_as_value(name, below)}" for name, below in keys.items()]
    return overrides


def _key_below(group: str, name: str) -> str:
    return group if name == "name" and group != "dataset" else f"{group}.{name}"


def _as_value(key: str, value: Any) -> str:
    """``value`` in Hydra's override grammar: null, true, a number, a quoted text, a list or a mapping."""
    value = value.tolist() if hasattr(value, "tolist") else value  # of numpy and torch
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (str, os.PathLike)):
        return quote(str(value))
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return f"[{','.join(_as_value(key, element) for element in value)}]"
    if isinstance(value, Mapping) and all(re.fullmatch(r"[\w./-]+", str(name)) for name in value):
        return f"{{{','.join(f'{name}:{_as_value(key, below)}' for name, below in value.items())}}}"
    raise ConfigError(
        f"{key} has a value of the type {type(value).__name__}: give a number, a text, True or False, None, or a list"
        " or a mapping of these"
    )
