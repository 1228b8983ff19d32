"""Keys below a swept group are composed in the jobs of the sweep, where the choice that has these keys is known."""

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from fullgnn.config.overrides import defer_keys_of_swept_groups


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
