"""The help of the two training commands."""

import re
from pathlib import Path

import pytest

from fullgnn import train, train_minibatch
from fullgnn.config.help import _KEYS, training_help

OF_SAMPLED_TRAINING = ("sampler", "cache")


def groups(text: str) -> dict[str, list[str]]:
    """The choices of each group."""
    section = re.search(r"(?s)Groups and their choices.*?:\n(.*?)\n  Groups without", text)
    assert section is not None
    lines = re.sub(r"\n {6,}", " ", section[1]).splitlines()
    return {line.split()[0]: re.split(r",? +", line.strip())[1:] for line in lines}


@pytest.mark.parametrize("module", [train, train_minibatch])
def test_the_help_says_what_it_is_and_lists_groups_keys_and_examples(module) -> None:
    text = module.COMMAND.help()
    name = module.__name__
    assert " ".join(text.split()).startswith(" ".join(module.__doc__.split("\n\n")[0].split()))
    assert f"\n    python -m {name} [GROUP=CHOICE ...]" in text
    examples = re.sub(r" \\\n +", " ", text.partition("Examples:\n")[2]).splitlines()
    assert len(examples) == 3 and all(f"    {line.strip()}" in module.__doc__ for line in examples)
    assert all(len(line) <= 80 and line == line.rstrip() for line in text.splitlines())
    choices = groups(text)
    assert choices["optimizer"] == ["adam*", "adamw", "sgd"] and "experiment" in choices and "hardware" not in choices
    assert all(sum(choice.endswith("*") for choice in choices[group]) == (group != "experiment") for group in choices)


def test_only_sampled_training_lists_its_groups_and_keys() -> None:
    full, sampled = train.COMMAND.help(), train_minibatch.COMMAND.help()
    for group in OF_SAMPLED_TRAINING:
        assert group not in groups(full) and group in groups(sampled)
    assert "loader" not in full and "loader.batch_size=1024" in sampled
    assert "train.epochs=200 " in full and "train.epochs=20 " in sampled
    for key in _KEYS:
        of_full = key.partition(".")[0] not in (*OF_SAMPLED_TRAINING, "loader")
        assert (f"  {key}=" in full) == of_full and f"  {key}=" in sampled


@pytest.mark.parametrize("flag", ["--config-dir={}", "--config-dir {}", "-cd {}"])
def test_choices_of_ones_own_are_listed(flag: str, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text("name: mine\n")
    text = training_help("fullgnn.train", "config", "Train.", flag.format(tmp_path).split(" "))
    assert "mine" in groups(text)["model"] and "mine" not in groups(text)["task"]
