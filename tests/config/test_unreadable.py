"""An argument that Hydra's grammar does not have is refused with the argument to write, ready for a shell."""

import os
import shlex
import sys
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from fullgnn.config.compose import compose, load_config
from fullgnn.config.explain import pasteable
from fullgnn.config.keys import load_keys
from fullgnn.errors import ConfigError
from fullgnn.graph import load_dataset
from fullgnn.plan import PlanConfig
from tests.cases import config
from tests.commands import OWN, run_command

UNREADABLE = [
    "runs/a=b",
    "/data/été (1)/x.npz",
    "C:\\été\\",
    "it's",
    'say "no"',
    'it\'s "both"',
    "ends with\\ été\\",
    "a\\'b",
    'é\\"b\\',
    "a,b=c",
    "a{b}",
    "{a}",
    "{a: 1}",
    "[x]",
    "[x]/été",
    "[x",
    "x]",
    "~/x",
    "~",
    "100% (of it): all",
    "日本",
    "a;b&c*d!e#f^g`h<i>",
    "=a",
    "f(x)",
    "choice(1)",
    "choice(1,2)=x",
    "a, b",
    "${seed}=1",
]
READABLE = ["a b", "50%", "a:b", "a\\b", "a@b", "-a"]


def printed(text: str) -> str:
    """The argument behind the last "write" of an error message, as a shell passes it on."""
    (argument,) = shlex.split(text.rpartition(" write ")[2].split(", or ")[-1].removesuffix(" if it is a text"))
    return argument


@pytest.mark.sample(3)
@pytest.mark.parametrize("value", UNREADABLE)
def test_the_printed_argument_is_the_value(value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(compose(f"run_dir={value}"))
    expected = value.replace("${seed}", "0")
    assert "\n" not in str(caught.value)
    assert load_config(compose(printed(str(caught.value)))).run_dir == os.path.abspath(os.path.expanduser(expected))


@pytest.mark.parametrize("value", READABLE)
def test_others_need_no_quotes(value: str) -> None:
    assert load_config(compose(f"run_dir={value}")).run_dir == os.path.abspath(value)


def test_the_message_is_one_line_with_the_argument() -> None:
    with pytest.raises(ConfigError) as caught:
        compose("run_dir=runs/a=b")
    assert str(caught.value) == "argument run_dir=runs/a=b cannot be read: write 'run_dir=\"runs/a=b\"'"
    with pytest.raises(ConfigError, match=r"a list or mapping|whole list or mapping, or 'optimizer.betas=\"\[1\"'"):
        compose("optimizer.betas=[1")


@pytest.mark.parametrize("argument", ["optimizer.lr", "été=1", "a b=1", "run_dir=(\n", "run_dir=(  )", "run_dir=a${x"])
def test_what_quotes_do_not_help_is_explained(argument: str) -> None:
    with pytest.raises(ConfigError, match="cannot be read: write key=value, and quote a value with special characters"):
        compose(argument)


def test_numbers_are_not_quoted() -> None:
    for argument in ("seed=0,1", "optimizer.lr=0.1,0.2", "runtime.device=cpu,cuda"):
        with pytest.raises(ConfigError, match=r"gives several values: add -m to sweep over them$"):
            compose(argument)


@pytest.mark.parametrize("value", ["a=b", "a,b", "(a)"])
def test_keys_of_other_commands(value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_keys("plan", PlanConfig, [f"out={value}"])
    (argument,) = shlex.split(str(caught.value).rpartition(" write " if "," not in value else " as ")[2])
    assert load_keys("plan", PlanConfig, [argument]).out == value


@pytest.mark.parametrize(
    ("argument", "values"),
    [
        ("dataset.path=/a=1/x.npz,/b/é.npz", ["/a=1/x.npz", "/b/é.npz"]),
        ("dataset.path=/a/x.npz,/b (1)/é.npz,3", ["/a/x.npz", "/b (1)/é.npz", 3]),
        ("dataset.path='a,b',c=d", ["a,b", "c=d"]),
        ("dataset.path=(a)", ["(a)"]),
    ],
)
def test_commas_of_a_sweep_stay(argument: str, values: list) -> None:
    (word,) = shlex.split(pasteable(argument, sweep=True) or "")
    override = OverridesParser.create().parse_override(word)
    if len(values) == 1:
        assert override.value() == values[0]
    else:
        read = [OverridesParser.create().parse_override(f"x={raw}").value() for raw in override.sweep_string_iterator()]
        assert read == values
    assert pasteable("dataset.path=choice(a=b,c)", sweep=True) is None


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("module", "key"),
    [
        ("train", "run_dir"),
        ("train_minibatch", "run_dir"),
        ("predict", "checkpoint"),
        ("plan", "out"),
        ("prepare", "runtime.cache_dir"),
    ],
)
def test_every_command_prints_it_once(module: str, key: str, tmp_path: Path) -> None:
    value = "runs/été=(1) it's"
    command = [sys.executable, "-m", f"fullgnn.{module}"]
    given = {"predict": [], "plan": ["hardware=h200x8"]}.get(module, ["runtime.device=cpu", "train.epochs=1"])
    run = given if module == "predict" else [*given, "dataset=karate"]
    done = run_command(command, *run, f"{key}={value}", cwd=tmp_path)
    (line,) = done.output.splitlines()
    assert done.status == 1 and line.startswith(f"error: argument {key}={value} cannot be read: write ")
    again = run_command(command, *run, printed(line), cwd=tmp_path)
    if module == "predict":
        assert f"checkpoint={value}" in again.output or value in again.output
    else:
        assert again.status == 0 and (tmp_path / value).is_dir(), again.output


def test_a_report_takes_such_a_folder_as_it_is(tmp_path: Path) -> None:
    folder = "runs/été=(1) it's"
    done = run_command(OWN, "dataset=karate", "train.epochs=1", f'run_dir="{folder}"', cwd=tmp_path)
    assert done.status == 0, done.output
    done = run_command([sys.executable, "-m", "fullgnn.report"], folder, f"out={folder}/a=b", cwd=tmp_path)
    assert done.status == 0 and (tmp_path / folder / "a=b" / "report.html").is_file(), done.output


def test_a_sweep_runs_as_it_is_printed(tmp_path: Path) -> None:
    files = ["a=1.npz", "b (2).npz"]
    for file in files:
        load_dataset(config("dataset=karate").dataset).save(tmp_path / file)
    sweep = ["-m", "dataset=npz", "train.epochs=1", "runtime.device=cpu", "run_dir=sweep"]
    done = run_command(OWN, *sweep, f"dataset.path={','.join(files)}", cwd=tmp_path)
    (line,) = done.errors
    done = run_command(OWN, *sweep, printed(line), cwd=tmp_path)
    assert done.status == 0 and len(list((tmp_path / "sweep").glob("*/record.json"))) == 2, done.output
