"""Keys, choices and record fields of version 0.1.0 still work, under their current or their old names, or say in one
line that they were removed and what to write instead.

``version_0.1.0.json`` has the keys of the configuration with the choices whose YAML sets them, the values of keys that
are chosen from a list, the fields of ``record.json``, and the keys of the other commands.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser

from fullgnn.bench.config import BenchConfig
from fullgnn.config import Config, build, conf_dir
from fullgnn.config.compose import _CHOICES, _known_keys, compose, load_config
from fullgnn.config.overrides import REMOVED, REMOVED_TARGETS, RENAMED, defer_keys_of_swept_groups, with_current_names
from fullgnn.errors import ConfigError
from fullgnn.plan.config import PlanConfig
from fullgnn.reproduce.config import load_target, targets
from fullgnn.storage.record import RENAMED_FIELDS, RunRecord, read_record, strict_json
from tests.storage.records import whole_record

BEFORE: dict[str, Any] = json.loads((Path(__file__).parent / "version_0.1.0.json").read_text())


def current(key: str) -> str:
    """The current name of a dotted key or group."""
    old = next((old for old in RENAMED if f"{key}.".startswith(f"{old}.")), "")
    return RENAMED[old] + key[len(old) :] if old else key


def test_every_key_is_there_with_its_choices() -> None:
    known = _known_keys(Config)
    for key, choices in BEFORE["keys"].items():
        if key in REMOVED:
            assert known.get(key, set()) < set(choices)
            continue
        assert current(key) in known, key
        if not current(key).startswith("optimizer"):  # was a part of train
            # the other choices of a group include base
            there = {choice for choice in choices if f"{key.partition('.')[0]}={choice}" not in REMOVED} - {"base"}
            assert there <= known[current(key)], key


def test_every_value_of_a_list_is_there() -> None:
    for key, values in BEFORE["choices"].items():
        group = {path.stem for path in (conf_dir() / current(key)).glob("*.yaml")}
        assert set(values) <= (group or set(_CHOICES[current(key)])), key


def test_every_field_of_a_record_is_there() -> None:
    there = {field.name for field in fields(RunRecord)}
    assert {RENAMED_FIELDS.get(name, name) for name in BEFORE["record"]} <= there


def test_a_record_of_before_is_read(tmp_path: Path) -> None:
    values = whole_record() | {new: {"of": new} for new in RENAMED_FIELDS.values()}
    names = {new: old for old, new in RENAMED_FIELDS.items()}
    before = {names.get(name, name): value for name, value in values.items()}
    (tmp_path / "record.json").write_text(strict_json(before))
    assert asdict(read_record(tmp_path)) == values


@pytest.mark.parametrize(("command", "schema"), [("bench", BenchConfig), ("plan", PlanConfig)])
def test_every_key_of_a_command_is_there(command: str, schema: type) -> None:
    assert set(BEFORE[command]) <= {field.name for field in fields(schema)}
    assert set(BEFORE[command]) <= set(yaml.safe_load((conf_dir() / f"{command}.yaml").read_text()))


def test_every_target_and_its_keys_are_there() -> None:
    assert set(BEFORE["reproduce"]) <= set(targets())
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


def test_every_old_key_composes() -> None:
    for key in BEFORE["keys"]:
        if key.startswith("work."):
            name = key.partition(".")[2]
            value = vars(load_config(compose()).optimizations)[name]
            chosen = load_config(compose(f"{key}={str(value).lower() if isinstance(value, bool) else value}"))
            assert vars(chosen.optimizations)[name] == value


OPTIMIZERS: dict[str, dict[str, Any]] = {
    "": {"name": "adam", "lr": 0.01, "weight_decay": 5e-4, "momentum": None},
    "train.lr=0.5 train.weight_decay=0": {"name": "adam", "lr": 0.5, "weight_decay": 0.0},
    "train.optimizer=sgd": {"name": "sgd", "lr": 0.01, "weight_decay": 5e-4, "momentum": 0.0},
    "train.momentum=0.9 train.optimizer='sgd'": {"name": "sgd", "momentum": 0.9},
    "+train.optimizer=sgd ++train.lr=1": {"name": "sgd", "lr": 1.0},
    "train.optimizer=adam train.momentum=0.0": {"name": "adam", "momentum": None},
    "train.momentum=0": {"name": "adam", "momentum": None},
    "optimizer=adamw train.lr=0.1": {"name": "adamw", "lr": 0.1, "weight_decay": 0.01},
}


@pytest.mark.parametrize("given", OPTIMIZERS)
def test_the_keys_of_the_optimizer_are_taken_from_train(given: str) -> None:
    optimizer = load_config(compose(*given.split())).optimizer
    assert {key: optimizer.get(key) for key in OPTIMIZERS[given]} == OPTIMIZERS[given]
    assert not set(optimizer) - {"_target_", "name", "lr", "betas", "eps", "momentum", "nesterov", "weight_decay"}


def test_an_old_key_in_a_file_is_named_with_its_new_name(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text("# @package _global_\ntrain:\n  lr: 0.5\n")
    with pytest.raises(ConfigError, match="^train.lr in experiment/mine.yaml is now called optimizer.lr: change it in"):
        compose("experiment=mine", f"hydra.searchpath=[{tmp_path}]")


def test_what_was_removed_is_refused_with_what_to_write_instead(tmp_path: Path) -> None:
    """On the command line, in a file of the user that names a choice or a key, and in one that names a target."""
    assert {*REMOVED_TARGETS.values()} == {name for name in REMOVED if "=" in name}
    choice = "^kernel=persistent was removed, since its products were wrong on GPUs: choose kernel=auto or kernel=csr$"
    key = "^kernel.columns_a_pass was removed with kernel=persistent: leave it out$"
    files = {
        "experiment/chosen": "# @package _global_\ndefaults:\n  - override /kernel: persistent\n",
        "kernel/kept": "_target_: fullgnn.kernels.spmm.PersistentCSR\nname: kept\nmode: ieee\ncolumns_a_pass: null\n",
        "kernel/key": "_target_: fullgnn.kernels.spmm.TritonCSR\nname: key\ncolumns_a_pass: 32\n",
        "kernel/old": "_target_: fullgnn.kernels.spmm.Packed\nname: old\npanel_rows: 64\nmode: bf16x3\nplanes: false\n",
    }
    for name, text in files.items():
        path = tmp_path / f"{name}.yaml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    for given, said in {
        "kernel=persistent": choice,
        "kernel=persistent kernel.columns_a_pass=32": choice,
        "kernel=csr kernel.columns_a_pass=32": key,
        "+kernel.columns_a_pass=32": key,
        "experiment=chosen": choice,
        "kernel=kept": choice,
        "kernel=key": key,
        "kernel=tile32 kernel.planes=true": f"^kernel.planes {REMOVED['kernel.planes']}$",
        "kernel=packed kernel.panel_rows=64": f"^kernel.panel_rows {REMOVED['kernel.panel_rows']}$",
        "kernel=old": "^kernel.(planes|panel_rows) was removed, since every .*: leave it out$",
    }.items():
        with pytest.raises(ConfigError, match=said):
            load_config(compose(*given.split(), folders=[str(tmp_path)]))


MODE = f"^kernel.mode {REMOVED['kernel.mode']}$"


@pytest.fixture
def of_mode(tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    """Composes with files of a user, in which a target and a choice have the mode bf16x3 or bf16."""
    packed = "_target_: fullgnn.kernels.spmm.Packed\nname: packed\n"
    experiment = "# @package _global_\ndefaults:\n  - override /kernel: tile32\nkernel:\n"
    for folder, text in {"kernel": packed, "experiment": f"{experiment}  "}.items():
        (tmp_path / folder).mkdir()
        for mode in ("bf16x3", "bf16"):
            (tmp_path / folder / f"{mode}.yaml").write_text(f"{text}mode: {mode}\n")
    return lambda given: load_config(compose(*given.split(), folders=[str(tmp_path)])).kernel


def test_the_mode_that_every_product_has_now_is_left_out(of_mode: Callable[[str], dict[str, Any]]) -> None:
    packed = {"_target_": "fullgnn.kernels.spmm.Packed", "name": "packed"}
    tile32 = {"_target_": "fullgnn.kernels.spmm.Tile32", "name": "tile32", "density_threshold": 0.05}
    sweep = defer_keys_of_swept_groups(with_current_names(["-m", "kernel=packed,tile32", "kernel.mode=bf16x3"]))[1:]
    jobs = BasicSweeper.split_arguments(OverridesParser.create().parse_overrides(sweep), None)[0]
    for given, node in {
        "kernel=packed kernel.mode=bf16x3": packed,
        "kernel=tile32 +kernel.mode='bf16x3'": tile32,
        "kernel=csr kernel._target_=fullgnn.kernels.spmm.Packed kernel.name=packed kernel.mode=bf16x3": packed,
        "kernel=bf16x3": packed,
        "experiment=bf16x3": tile32,
        " ".join(jobs[0]): packed,
        " ".join(jobs[1]): tile32,
    }.items():
        assert of_mode(given) == node, given


def test_every_other_mode_is_refused_with_what_to_write_instead(of_mode: Callable[[str], dict[str, Any]]) -> None:
    for given in (
        "kernel=packed kernel.mode=bf16",
        "kernel=packed kernel.mode=ieee",
        "kernel=tile32 ++kernel.mode=bf16x2",
        "kernel=csr kernel._target_=fullgnn.kernels.spmm.Tile32",
        "kernel=bf16",
        "experiment=bf16",
        "kernel.mode=bf16x3",
    ):
        with pytest.raises(ConfigError, match=MODE):
            of_mode(given)


def test_the_modes_of_csr_stay() -> None:
    for given, mode in {"": "ieee", "kernel.mode=bf16": "bf16", "kernel.mode=bf16x3": "bf16x3"}.items():
        kernel = load_config(compose("kernel=csr", *given.split())).kernel
        assert kernel["mode"] == mode
    with pytest.raises(ConfigError, match="^kernel.mode=bf16x3 is not known to kernel=csr: choose one of ieee, bf16$"):
        build(kernel)


def test_a_momentum_for_adam_is_refused_under_its_old_name_too() -> None:
    for given in ("train.momentum=0.9", "++optimizer.momentum=0.9", "train.momentum=null"):
        with pytest.raises(ConfigError, match="^optimizer.momentum=.* needs optimizer=sgd: optimizer=adam has no mom"):
            load_config(compose(given))


def test_a_sweep_over_old_names_is_one_over_the_new() -> None:
    """Each sweep gives the optimizers of its jobs: name, learning rate, momentum."""
    sweeps = {
        "train.lr=0.1,0.01": ["adam 0.1 -", "adam 0.01 -"],
        "train.optimizer=adam,sgd train.lr=0.5": ["adam 0.5 -", "sgd 0.5 0.0"],
        "train.optimizer=adam,sgd train.momentum=0.0": ["adam 0.01 -", "sgd 0.01 0.0"],
        "train.optimizer=sgd train.momentum=0,0.9": ["sgd 0.01 0.0", "sgd 0.01 0.9"],
    }
    for given, expected in sweeps.items():
        arguments = defer_keys_of_swept_groups(with_current_names(["-m", *given.split()]))[1:]
        first = [argument for argument in arguments if not is_swept(argument)]
        load_config(compose(*first))  # Hydra composes a sweep without its swept overrides first
        jobs = BasicSweeper.split_arguments(OverridesParser.create().parse_overrides(arguments), None)[0]
        found = []
        for job in jobs:
            optimizer = load_config(compose(*job)).optimizer
            found.append(f"{optimizer['name']} {optimizer['lr']} {optimizer.get('momentum', '-')}")
        assert found == expected, given


def is_swept(argument: str) -> bool:
    return OverridesParser.create().parse_override(argument).is_sweep_override()
