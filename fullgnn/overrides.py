"""Command-line overrides, before Hydra sees them."""

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException


def hold_for_jobs(arguments: list[str]) -> list[str]:
    """Let ``-m dataset=cora,pubmed dataset.root=...`` mean what it says.

    Hydra first composes a sweep without its swept overrides, so with the default dataset, and refuses a key that only
    the swept choices have. A one-element sweep, ``dataset.root=choice(...)``, is applied to the jobs alone; this
    rewrites the keys below a swept group into that form. Other arguments are returned as they are.
    """
    if not {"-m", "--multirun"} & set(arguments):
        return arguments
    parser = OverridesParser.create()
    parsed = {}
    for argument in arguments:
        try:
            parsed[argument] = parser.parse_override(argument)
        except HydraException:
            continue  # a flag, or a mistake that Hydra reports better
    swept = tuple(f"{override.key_or_group}." for override in parsed.values() if override.is_sweep_override())
    return [
        f"{argument.partition('=')[0]}=choice({parsed[argument].get_value_element_as_str()})"
        if argument in parsed
        and parsed[argument].key_or_group.startswith(swept)
        and not parsed[argument].is_sweep_override()
        and parsed[argument].value() is not None  # no choice(null) in Hydra; nothing to choose in ~key
        else argument
        for argument in arguments
    ]
