"""Read the command line of a command that has one YAML file, such as ``conf/bench.yaml``, and a dataclass as schema.

Every user error becomes one line.
"""

import difflib
import re
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import hydra
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigKeyError

from fullgnn.config import conf_dir
from fullgnn.config.explain import explain, in_words, is_user_error, pasteable
from fullgnn.errors import ConfigError

CONFIG_FLAGS = ("--config-dir", "-cd")
"""The flags that name a folder with YAML files of the user."""


def load_keys(name: str, schema: type, overrides: list[str]) -> Any:
    """Compose ``conf/<name>.yaml`` with ``overrides`` into an instance of the dataclass ``schema``.

    Raises:
        ConfigError: one line naming the key and what is wrong with it.
    """
    try:
        with hydra.initialize_config_dir(str(conf_dir()), version_base="1.3"):
            composed = hydra.compose(name, overrides=overrides)
        _check_complete(composed, schema)
        OmegaConf.resolve(composed)
        return OmegaConf.to_object(OmegaConf.merge(schema, composed))
    except Exception as error:
        if not is_user_error(error):
            raise
        raise ConfigError(explain_keys(error, schema)) from error


def config_folders(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The folders that ``--config-dir`` names, and the other arguments.

    Raises:
        ConfigError: the flag names no folder.
    """
    folders, others, rest = list[str](), list[str](), iter(arguments)
    for argument in rest:
        flag, has_value, value = argument.partition("=")
        if flag not in CONFIG_FLAGS:
            others.append(argument)
            continue
        folders.append(value if has_value else next(rest, ""))
        if not folders[-1]:
            raise ConfigError(f"{flag} has no value: give {flag}=FOLDER, the folder of your own YAML files")
    return folders, others


def help_with_keys(description: str | None, name: str) -> str:
    """The help of a command: its ``description`` and the file ``conf/<name>.yaml``, which explains every key."""
    return f"{description}\n{(conf_dir() / f'{name}.yaml').read_text()}"


def choices(group: str, folders: Iterable[str] = ()) -> list[str]:
    """The names of the YAML files of a configuration group, with those in ``folders`` of the user."""
    files = [path for folder in (conf_dir(), *map(Path, folders)) for path in (folder / group).glob("*.yaml")]
    return sorted({path.stem for path in files} - {"base"})


def check_choices(key: str, values: Iterable[Any], known: Iterable[Any]) -> None:
    """Refuse the first of ``values`` that is not ``known``.

    Raises:
        ConfigError: one line naming the key, the value and the choices.
    """
    known = list(dict.fromkeys(known))
    for value in values:
        if value not in known:
            raise ConfigError(f"{key}={value} is not known: choose one of {', '.join(map(str, known))}")


def check_minima(cfg: Any, minima: Mapping[str, float]) -> None:
    """Refuse a number, or a number in a list, below the minimum of its key; a key that is null or absent passes.

    Raises:
        ConfigError: one line naming the key, the value and the minimum.
    """
    for key, least in minima.items():
        value = getattr(cfg, key, None)
        for number in value if isinstance(value, list) else [value]:
            if number is not None and not number >= least:
                raise ConfigError(f"{key}={number} is out of range: it must be at least {least}")


def _check_complete(composed: DictConfig, schema: type) -> None:
    for key in typing.get_type_hints(schema):
        if key not in composed:
            raise ConfigError(f"{key} cannot be removed: leave out ~{key}")


def explain_keys(error: Exception, schema: type) -> str:
    """Explain ``error`` in one line, like ``fullgnn.config.explain.explain``, for the keys of ``schema``."""
    text = " ".join(str(error).split())
    hints = typing.get_type_hints(schema)
    name = str(getattr(error, "full_key", "") or "").partition("[")[0]
    override = re.match(r"(?:Could not override|Error merging override) '?([^'=\s]+)", text)
    if override:
        name = override[1].lstrip("+")
    if removed := re.match(r"Could not delete from config. '([^']+)'", text):
        return f"{removed[1]} cannot be removed: leave out ~{removed[1]}"
    if name in hints:
        return f"{name} does not fit: it takes {in_words(hints[name])}"
    if name.partition(".")[0] in hints:
        if "Could not override" in text or isinstance(error, ConfigKeyError):
            return f"{name} is not a known key"
        return f"{name} does not fit: it takes {in_words(_hint_at(schema, name))}"
    if name:
        near = difflib.get_close_matches(name, hints, n=1, cutoff=0.6)
        return f"unknown key {name}: " + (f"did you mean {near[0]}?" if near else f"the keys are {', '.join(hints)}")
    if several := re.match(r"Ambiguous value for argument '([^']+)'", text):
        refused = f"{several[1]} gives several values: run once for each, or write a list as key=[a,b]"
        given = re.match(r"(?s)Ambiguous value for argument '(.*?)'\n", str(error))
        key = several[1].partition("=")[0]
        arg = pasteable(given[1]) if given and "a text" in in_words(hints.get(key, int)) else None
        return f"{refused}, or one text as {arg}" if arg else refused
    return explain(error)


def _hint_at(hint: Any, name: str) -> Any:
    """The type of the dotted key ``name`` below ``hint``, which is a dataclass or a dict, or an optional one."""
    for part in name.split("."):
        if typing.get_origin(hint) in (typing.Union, types.UnionType):
            hint = typing.get_args(hint)[0]
        hint = typing.get_args(hint)[1] if typing.get_origin(hint) is dict else typing.get_type_hints(hint)[part]
    return hint
