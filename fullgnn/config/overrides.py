"""Rewrite overrides: from the command line for Hydra, and from a job for its ranks."""

import logging
import re
from collections.abc import Iterable

from hydra.conf import HydraConf
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

log = logging.getLogger(__name__)

RENAMED = {
    "work": "optimizations",
    "train.optimizer": "optimizer",
    "train.lr": "optimizer.lr",
    "train.momentum": "optimizer.momentum",
    "train.weight_decay": "optimizer.weight_decay",
}
"""Old name -> new name of groups and keys. The next version will not know the old names."""


def with_current_names(overrides: Iterable[str]) -> list[str]:
    """Replace the old name of every renamed group and key in ``overrides``; each old name is logged.

    ``train.momentum`` was a key of every optimizer, and ``optimizer.momentum`` is not. The prefix ``++`` adds the key
    to any optimizer, and ``drop_zero_momentum`` removes it again or refuses it, when the optimizer is known.
    """
    current = []
    for override in overrides:
        found = re.match(r"([~+]*)([^@:=]+)", override)
        old = found and next((name for name in RENAMED if f"{found[2]}.".startswith(f"{name}.")), None)
        if found and old:
            new, prefix = RENAMED[old], found[1]
            if "~" not in prefix:
                prefix = {"train.optimizer": "", "train.momentum": "++"}.get(old, prefix)
            log.info("%s is now called %s: the next version will not know the old name (%s)", old, new, override)
            override = prefix + new + override[found.start(2) + len(old) :]
        current.append(override)
    return current


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


def quote(text: str) -> str:
    """Quote ``text`` as one value of Hydra's override grammar."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
