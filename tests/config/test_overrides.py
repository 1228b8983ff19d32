"""Keys below a swept group are composed in the jobs of the sweep, which know the choice; settings given in Python."""

from pathlib import Path

import numpy as np
import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from fullgnn.config.compose import compose, load_config
from fullgnn.config.overrides import as_overrides, defer_keys_of_swept_groups, quote
from fullgnn.errors import ConfigError


@pytest.mark.parametrize(
    "arguments",
    [
        ["dataset=npz", "dataset.path=x.npz"],  # no sweep
        ["-m", "dataset=npz", "dataset.path=a,b", "train.epochs=3"],  # the group itself is not swept
        ["-m", "seed=0,1", "model.dropout=0.1"],
        ["-m", "dataset=cora,pubmed", "dataset.root=a,b"],  # swept already
        ["-m", "dataset=cora,pubmed", "dataset.root"],  # not key=value: Hydra reports it
        ["-m", "dataset=karate,digits", "~dataset.seed"],
        ["-m", "model=mlp,gcn", "model.input_dropout=null"],
    ],
)
def test_others_stay_as_they_are(arguments: list[str]) -> None:
    assert defer_keys_of_swept_groups(arguments) == arguments


@pytest.mark.parametrize("flag", ["-m", "--multirun"])
@pytest.mark.parametrize("value", ["/a/b", "3", "0.5", "'a, b = c'", "[1,2]", "{a: 1}"])
def test_a_key_below_a_swept_group_becomes_a_sweep_of_one(flag: str, value: str) -> None:
    before = [flag, "dataset=cora,pubmed", f"dataset.root={value}", "model.dropout=0.1"]
    after = defer_keys_of_swept_groups(before)
    assert [a for a, b in zip(after, before) if a != b] == [after[2]]
    parser = OverridesParser.create()
    held = parser.parse_override(after[2])
    assert held.is_sweep_override()
    (job_value,) = held.sweep_string_iterator()
    plain = parser.parse_override(f"dataset.root={value}")
    assert parser.parse_override(f"dataset.root={job_value}").value() == plain.value()


@pytest.mark.parametrize(
    "text", ["plain", "it's", "a, b = {c}", "null", "7", "", "a\\b", "a\\'b", "end\\", "\\\\\\", "'", "line\n", "a\\\n"]
)
def test_a_quoted_text_is_read_as_it_is(text: str) -> None:
    assert OverridesParser.create().parse_override(f"run_dir={quote(text)}").value() == text


@pytest.mark.parametrize(
    ("settings", "overrides"),
    [
        (["train.epochs=50", "~schedule"], ["train.epochs=50", "~schedule"]),
        ([{"train.epochs": 50, "scheme": "1d"}], ["train.epochs=50", "scheme='1d'"]),
        ([{"train": {"epochs": 50, "clip_norm": None}}], ["train.epochs=50", "train.clip_norm=null"]),
        ([{"model": {"name": "sage", "dropout": 0.5}}], ["model='sage'", "model.dropout=0.5"]),
        ([{"dataset": {"name": "mine", "symmetrize": True}}], ["dataset.name='mine'", "dataset.symmetrize=true"]),
        ([{"seed": np.int64(3)}, {"optimizer": {"lr": 1e-5}}], ["seed=3", "optimizer.lr=1e-05"]),
        ([{"optimizer.betas": (0.5, np.float64(0.25))}], ["optimizer.betas=[0.5,0.25]"]),
        ([{"task.class_weight": np.array([1, 2])}], ["task.class_weight=[1,2]"]),
        ([{"train": {"weight_decay_of": {"layers.0": 0.5}}}], ["train.weight_decay_of={layers.0:0.5}"]),
        ([{"run_dir": Path("a b")}, {}, {"train": {}}], ["run_dir='a b'"]),
    ],
)
def test_settings_of_python_become_overrides(settings: list, overrides: list[str]) -> None:
    assert as_overrides(settings) == overrides


def test_settings_of_python_are_composed_with_their_values() -> None:
    settings = {
        "model": {"name": "sage", "hidden_channels": 8},
        "scheme": "1.5d",
        "train": {"clip_norm": None, "weight_decay_of": {"layers.0": 0.5}},
        "task.metrics": ["macro_f1", "accuracy"],
        "run_dir": "it's \\ here",
    }
    cfg = load_config(compose(*as_overrides([settings, {"seed": 7}])))
    assert (cfg.model["name"], cfg.model["hidden_channels"], cfg.scheme["name"]) == ("sage", 8, "1.5d")
    assert cfg.train.clip_norm is None and cfg.train.weight_decay_of == {"layers.0": 0.5}
    assert cfg.task["metrics"] == ["macro_f1", "accuracy"] and cfg.seed == 7
    assert cfg.run_dir == str(Path("it's \\ here").absolute())


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (7, "a setting has the type int: write it as 'train.epochs=50'"),
        ({"train": {"epochs": object()}}, "train.epochs has a value of the type object: give a number"),
        ({"task.metrics": [b"accuracy"]}, "task.metrics has a value of the type bytes"),
        ({"train.weight_decay_of": {"a b": 1}}, "train.weight_decay_of has a value of the type dict"),
    ],
)
def test_what_no_key_takes_is_one_line(setting: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        as_overrides([setting])
    assert "\n" not in str(error.value)
