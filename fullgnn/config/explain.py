"""Say in one line what is wrong with a configuration, and what to write instead."""

import difflib
import re
import shlex
import types
import typing
from dataclasses import is_dataclass
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fullgnn.config.overrides import quote
from fullgnn.config.schema import CHOICES, OF_SPLIT, SCHEMAS, Config, conf_dir
from fullgnn.errors import quoted


def is_user_error(error: BaseException) -> bool:
    """Whether Hydra or OmegaConf raised ``error`` because of what the user wrote."""
    of_hydra = ("Config group override must be", "Exceeds the limit")  # scheme=2, and a number of 5000 digits
    by_text = isinstance(error, ValueError) and str(error).startswith(of_hydra)
    return by_text or isinstance(error, (HydraException, OmegaConfBaseException))


def explain(error: Exception, schema: type[Config] = Config, sweep: bool = False) -> str:
    """Say in one line what is wrong with a configuration of this ``schema``, and what to write instead.

    Args:
        sweep: whether the command line is that of a sweep, where commas separate values.
    """
    text = " ".join(str(error).split())
    cause = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else error
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        group, _, choice = error.missing_cfg_file.rpartition("/")
        options = ", ".join(option for option in error.options if option != "base")
        return f"{group}={choice} is not known: choose one of {options}"
    if isinstance(error, OverrideParseException):
        return _unreadable(str(error.override), sweep)
    if text.startswith("Exceeds the limit"):
        return "a number on the command line has thousands of digits: give one below 2^63"
    if text.startswith("Config group override must be"):
        return (
            "a number or null is no choice of dataset, model, scheme or another group: give a name, as in scheme=1.5d"
        )
    if ambiguous := re.match(r"Ambiguous value for argument '([^']+)'", text):
        several = re.match(r"(?s)Ambiguous value for argument '(.*?)'\n", str(error))
        arg = several and _as_text(several[1], schema)
        return f"{ambiguous[1]} gives several values: add -m to sweep over them" + (f", or write {arg}" if arg else "")
    if swept := re.match(r"(?s)Sweep parameters '(.*)' requires --multirun", str(error)):
        arg = pasteable(swept[1])
        return f"{' '.join(swept[1].split())} is a sweep: add -m" + (f", or write {arg} if it is a text" if arg else "")
    if unknown := re.match(r"Could not override '([^']+)'", text):
        return unknown_key(unknown[1], schema)
    if override := re.match(r"Error merging override (.+)", text):
        key, _, value = override[1].partition("=")
        if key.startswith("~"):
            return f"{key[1:]} cannot be removed: leave out {key}"
        cure = _as_text(override[1], schema) if value[:1] in ("[", "{") else None
        return wrong_value(key.lstrip("+"), value, _hint(key.lstrip("+"), schema)) + (f": write {cure}" if cure else "")
    detail = "" if cause is error else f" ({' '.join(str(cause).split())})"
    return text + detail


def _unreadable(argument: str, sweep: bool) -> str:
    """Refuse an ``argument`` that Hydra's grammar does not have, and show it as Hydra and a shell read it."""
    cure, value = pasteable(argument, sweep), argument.partition("=")[2]
    refused = f"argument {argument} cannot be read"
    if cure is None:
        return f"{refused}: write key=value, and quote a value with special characters"
    if value.startswith(("[", "{")):  # perhaps a list or a mapping that lacks its end
        return f"{refused}: write key=value with a whole list or mapping, or {cure} if it is a text"
    return f"{refused}: write {cure}"


def pasteable(argument: str, sweep: bool = False) -> str | None:
    """An ``argument`` that Hydra cannot read, or reads as no text, with its value quoted so that Hydra reads the value
    as it is, and quoted again for a shell.

    Args:
        sweep: whether commas separate several values, each of which is quoted if Hydra cannot read it.

    Returns:
        None: the key is wrong too, or an error message, which is one line, cannot show the value as it is.
    """
    key, sign, value = argument.partition("=")
    unended = re.search(r"[$][{][^}]*$", value)  # an interpolation, which no quotes hide
    if not sign or unended or (sweep and re.match(r"\w+\(", value)):  # a sweep such as choice(...)
        return None
    values = _values_of_sweep(value) if sweep else [value]
    spelled = [text if len(values) > 1 and _reads(f"{key}={text}") else _in_quotes(text) for text in values]
    fixed = f"{key}={','.join(spelled)}"
    return shlex.quote(fixed) if _reads(fixed) and fixed.isprintable() and " ".join(fixed.split()) == fixed else None


def _in_quotes(text: str) -> str:
    return quote(text, "'" if '"' in text and "'" not in text else '"')


def _values_of_sweep(value: str) -> list[str]:
    """The values between the commas that are outside of quotes."""
    values = value.split(",")
    if any(part[:1] in ("'", '"') and part[-1:] != part[:1] for part in values):
        values = re.findall(r"""(?:'[^']*'|"[^"]*"|[^,])+""", value)
    return values


def _reads(argument: str) -> bool:
    try:
        OverridesParser.create().parse_override(argument)
    except HydraException:
        return False
    return True


def _as_text(argument: str, schema: type[Config]) -> str | None:
    """``argument`` for a shell, with a value that is one text; None if the key takes no text, or perhaps none."""
    key, _, value = argument.partition("=")
    takes_text = "a text" in in_words(_hint(key.lstrip("+"), schema))
    return pasteable(argument) if key not in CHOICES and (takes_text or "/" in value) else None


def wrong_value(key: str, value: Any, hint: Any) -> str:
    """Refuse the ``value`` of a ``key`` that takes the type ``hint``."""
    if key in CHOICES:
        return not_a_choice(key, value)
    wanted, value = in_words(hint), "null" if value is None else quoted(value)
    return f"{key}={value} does not fit: it takes {wanted}" if wanted else f"{key}={value} is not possible here"


def not_a_choice(key: str, value: Any) -> str:
    """Refuse a ``value`` that is none of ``CHOICES``; both are spelled as in YAML."""
    choices = ", ".join(map(_spelled, CHOICES[key]))
    return f"{key}={quoted(_spelled(value))} is not known: choose one of {choices}"


def _spelled(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def in_words(hint: Any) -> str:
    """Describe a type: ``an integer or null`` for ``int | None``; empty for an unknown type."""
    if is_dataclass(hint):
        return f"the keys {', '.join(typing.get_type_hints(hint))}"
    if typing.get_origin(hint) is dict:
        each = in_words(typing.get_args(hint)[1])
        return f"keys and values, each {each}" if each else "keys and values"
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(filter(None, map(in_words, typing.get_args(hint))))
    if typing.get_origin(hint) in (list, tuple):
        element, *others = typing.get_args(hint)
        length = f" of {len(others) + 1}" if typing.get_origin(hint) is tuple else ""
        return f"a list{length}, each element {in_words(element)}, as in [a,b]"
    names = {int: "an integer", float: "a number", bool: "true or false", str: "a text", types.NoneType: "null"}
    return names.get(hint, "")


def _hint(key: str, schema: type[Config]) -> Any:
    """Annotated type of a dotted key of ``schema``; None below an open group."""
    hint: Any = schema
    for part in key.split("."):
        hint = typing.get_type_hints(hint).get(part) if is_dataclass(hint) else None
    return hint


def unknown_key(key: str, schema: type[Config]) -> str:
    """Explain an unknown key: name the likely key, or the choices that have the key, or all keys."""
    known = _known_keys(schema)
    if key.startswith("dataset.") and key.removeprefix("dataset.") in OF_SPLIT:
        return f"the YAML of this dataset has no {key}: write +{key}=..., or add the default base to its YAML"
    group, _, name = key.rpartition(".")
    if key in known:
        choices = " or ".join(f"{group}={choice}" for choice in sorted(known[key]))
        return f"{key} is not a key of the chosen {group}: it belongs to {choices}"
    siblings = {other.rpartition(".")[2]: other for other in known if other.rpartition(".")[0] == group}
    near = difflib.get_close_matches(name, siblings, n=1, cutoff=0.7)
    elsewhere = [other for other in sorted(known) if other.rpartition(".")[2] == name]
    elsewhere = difflib.get_close_matches(key, elsewhere, n=1, cutoff=0.0)
    if near or elsewhere:
        return f"unknown configuration key {key}: did you mean {siblings[near[0]] if near else elsewhere[0]}?"
    place = f"the keys of {group} in conf/" if group in known else "the keys"
    there = siblings if group in known else [other for other in known if "." not in other]
    return f"unknown configuration key {key}: {place} are {', '.join(sorted(there))}"


def _known_keys(schema: type[Config]) -> dict[str, set[str]]:
    """Return every dotted key and group of ``conf/`` that ``schema`` has, each with the choices whose file sets it."""
    known: dict[str, set[str]] = {}
    hints = typing.get_type_hints(schema)
    for path in conf_dir().rglob("*.yaml"):
        group = ".".join(path.parent.relative_to(conf_dir()).parts)
        # Experiments set keys of other groups; hardware profiles and the other commands have keys of their own.
        of_run = group in hints if group else path.stem in SCHEMAS
        if not of_run or path.stem == "base":
            continue
        of_group = typing.get_type_hints(hints[group]) if group and is_dataclass(hints[group]) else None
        content = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
        assert isinstance(content, dict)
        if "base" in content.get("defaults", []):
            content = dict(OmegaConf.load(path.with_name("base.yaml"))) | content
        for name in map(str, content):
            if of_group is not None and name not in of_group:
                continue
            if name not in ("defaults", "hydra", "method") and not name.startswith("_"):
                known.setdefault(f"{group}.{name}" if group else name, set()).add(path.stem)
        if group:
            known.setdefault(group, set())
    return known
