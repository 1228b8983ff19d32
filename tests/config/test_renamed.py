"""Keys, choices and record fields of version 0.1.0 still work, under their current or their old names.

``version_0.1.0.json`` has the keys of the configuration with the choices whose YAML sets them, the values of keys that
are chosen from a list, the fields of ``record.json``, and the keys of the other commands.
"""

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from fullgnn.bench.config import BenchConfig
from fullgnn.config import conf_dir
from fullgnn.config.compose import _CHOICES, _known_keys, compose, load_config
from fullgnn.config.overrides import RENAMED, with_current_names
from fullgnn.plan.config import PlanConfig
from fullgnn.reproduce.config import load_target, targets
from fullgnn.storage.record import RENAMED_FIELDS, RunRecord, read_record, strict_json

BEFORE: dict[str, Any] = json.loads((Path(__file__).parent / "version_0.1.0.json").read_text())


def current(key: str) -> str:
    """The current name of a dotted key or group."""
    group, dot, rest = key.partition(".")
    return RENAMED.get(group, group) + dot + rest


def test_every_key_is_there_with_its_choices() -> None:
    known = _known_keys()
    for key, choices in BEFORE["keys"].items():
        assert current(key) in known, key
        assert set(choices) - {"base"} <= known[current(key)], key  # the other choices of a group include base


def test_every_value_of_a_list_is_there() -> None:
    for key, values in BEFORE["choices"].items():
        assert set(values) <= set(_CHOICES[current(key)]), key


def test_every_field_of_a_record_is_there() -> None:
    there = {field.name for field in fields(RunRecord)}
    assert {RENAMED_FIELDS.get(name, name) for name in BEFORE["record"]} <= there


def test_a_record_of_before_is_read(tmp_path: Path) -> None:
    values = {field.name: None for field in fields(RunRecord)}
    names = {new: old for old, new in RENAMED_FIELDS.items()}
    before = {names.get(name, name): name for name in values}
    (tmp_path / "record.json").write_text(strict_json(before))
    assert asdict(read_record(tmp_path)) == {name: name for name in values}


@pytest.mark.parametrize(("command", "schema"), [("bench", BenchConfig), ("plan", PlanConfig)])
def test_every_key_of_a_command_is_there(command: str, schema: type) -> None:
    assert set(BEFORE[command]) <= {field.name for field in fields(schema)}
    assert set(BEFORE[command]) <= set(yaml.safe_load((conf_dir() / f"{command}.yaml").read_text()))


def test_every_target_and_its_keys_are_there() -> None:
    assert set(BEFORE["reproduce"]) == set(targets())
    for target, keys in BEFORE["reproduce"].items():
        assert set(keys) <= {field.name for field in fields(load_target(target))}, target


def test_every_key_of_a_hardware_profile_is_there() -> None:
    for path in (conf_dir() / "hardware").glob("*.yaml"):
        assert sorted(yaml.safe_load(path.read_text())) == BEFORE["hardware"]


def test_old_names_are_taken_and_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "fullgnn"):
        given = ["work.offload=never", "+work=default", "dataset=karate", "model.name='work=1'"]
        assert with_current_names(given) == ["optimizations.offload=never", "+optimizations=default", *given[2:]]
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2 and said[0] == (
        "work is now called optimizations: the next version will not know the old name (work.offload=never)"
    )


@pytest.mark.parametrize("old", RENAMED)
def test_every_old_key_composes(old: str) -> None:
    for key in BEFORE["keys"]:
        if key.startswith(f"{old}."):
            name = key.partition(".")[2]
            value = vars(getattr(load_config(compose()), RENAMED[old]))[name]
            chosen = load_config(compose(f"{key}={str(value).lower() if isinstance(value, bool) else value}"))
            assert vars(getattr(chosen, RENAMED[old]))[name] == value
