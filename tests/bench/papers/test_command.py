"""The command ``reproduce``: its targets, its keys, its one-line errors, and the files that a target leaves."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from fullgnn import reproduce as command
from fullgnn.bench.config import presets
from fullgnn.bench.papers.config import cases_of, load_target, schema_of, split_arguments, targets
from fullgnn.bench.papers.hetu.orders import BLOCK_COLUMNS
from fullgnn.errors import ConfigError, UnsupportedError

WRONG_ARGUMENTS = {
    "": "give target=..., one of table2, ",
    "target=null": "give target=..., one of table2, ",
    "target=table9": "target=table9 is not known: choose one of table2, ",
    "target=[table2,figure]": "target=figure is not known: choose one of table2, ",
    "target=[table2,all]": "target=all is not known: choose one of table2, ",
    "target=[table2": "argument target=[table2 cannot be read: write key=value",
}

WRONG_KEYS = {
    "scal=1": "unknown key scal: did you mean scale?",
    "+foo=1": "unknown key foo: the keys are title, datasets, ",
    "scale=x": "scale does not fit: it takes a number or null",
    "scale=0": "scale=0 is out of range: it must be above 0 and at most 1",
    "scale=2": "scale=2 is out of range: it must be above 0 and at most 1",
    "epochs=1": "epochs=1 is out of range: it must be at least 2",
    "nproc=0": "nproc=0 is out of range: it must be at least 1",
    "device=gpu": "device=gpu is not known: choose one of cpu, cuda, auto",
    "datasets=[cora]": "datasets=cora is not known: choose one of reddit-like, ",
    "datasets=[]": "datasets=[] leaves nothing to do: the target has reddit-like, ",
    "datasets=cora": "datasets does not fit: it takes a list, each element a text",
    "scale=1,2": "scale=1,2 gives several values: run once for each",
    "sizes.reddit-like.scale=x": "sizes.reddit-like.scale does not fit: it takes a number",
    "sizes.foo.scale=1": "sizes.foo.scale is not a known key",
    "~scale": "scale cannot be removed: leave out ~scale",
}


@pytest.mark.parametrize("arguments", WRONG_ARGUMENTS)
def test_a_wrong_target_is_one_line(arguments: str) -> None:
    with pytest.raises(ConfigError) as caught:
        split_arguments(arguments.split())
    assert str(caught.value).startswith(WRONG_ARGUMENTS[arguments])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("overrides", WRONG_KEYS)
def test_a_wrong_key_is_one_line(overrides: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_target("table3", *overrides.split())
    assert str(caught.value).startswith(WRONG_KEYS[overrides])
    assert "\n" not in str(caught.value)


def test_targets_out_and_the_rest_are_told_apart() -> None:
    assert split_arguments(["target=[table3,table2]", "scale=1", "out=x"]) == (["table3", "table2"], "x", ["scale=1"])
    assert split_arguments(["target=all"]) == (targets(), None, [])


def test_every_target_has_a_row_and_a_title() -> None:
    for target in targets():
        cfg = load_target(target)
        assert getattr(cfg, "case", target) in cases_of(target)
        assert isinstance(cfg, schema_of(target))
        assert cfg.title.startswith(("Table ", "Figure ", "Shares ", "Time ", "Memory ", "Hits "))
        assert cfg.device in ("cpu", "cuda")
        assert cfg.threads >= 1


def test_a_target_has_the_keys_that_its_yaml_names() -> None:
    assert hasattr(load_target("fig7"), "tolerance") and not hasattr(load_target("table3"), "tolerance")
    with pytest.raises(ConfigError, match="^unknown key tolerance: "):
        load_target("table3", "+tolerance=1")


def test_the_targets_are_no_presets_of_the_bench() -> None:
    assert not set(presets()) & {"reproduce", *targets()}


def test_a_run_leaves_its_page_table_plot_and_record(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    command.run_target("table2", load_target("table2"), [], tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["record.json", "table2.csv", "table2.md", "table2.png"]
    assert (tmp_path / "table2.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["command"] == "python -m fullgnn.reproduce target=table2"
    assert record["hardware"]["cpu"] and record["versions"]["matplotlib"]
    lines = list(csv.DictReader((tmp_path / "table2.csv").open()))
    assert {line["origin"] for line in lines} == {"derived"}
    assert {line["column"] for line in lines} == set(BLOCK_COLUMNS)
    page = (tmp_path / "table2.md").read_text()
    assert page.startswith("# Table 2") and "![Table 2: blocks by scheme](table2.png)" in page


def test_a_failing_target_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")

    def refuse(*arguments: object) -> None:
        raise UnsupportedError("no such thing here")

    monkeypatch.setitem(cases_of("table3"), "table3", replace(cases_of("table3")["table3"], fill=refuse))
    assert command.run_all(["table3", "table2"], [], tmp_path) == ["table3"]
    index = (tmp_path / "index.md").read_text()
    assert "- failed: table3: no such thing here" in index
    assert "- [table2](table2/table2.md)" in index
    assert (tmp_path / "table2" / "record.json").exists()
    assert not (tmp_path / "table3" / "error.txt").exists()  # a user error has no traceback


def test_a_defect_leaves_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")

    def fail(*arguments: object) -> None:
        raise ZeroDivisionError("here")

    monkeypatch.setitem(cases_of("table2"), "table2", replace(cases_of("table2")["table2"], finish=fail))
    assert command.run_all(["table2"], [], tmp_path) == ["table2"]
    assert "- failed: table2: ZeroDivisionError: here" in (tmp_path / "index.md").read_text()
    assert "Traceback" in (tmp_path / "table2" / "error.txt").read_text()


def test_without_matplotlib_nothing_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UnsupportedError, match="^figures need matplotlib, which is not installed: pip install "):
        command.run_target("table2", load_target("table2"), [], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_flag_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["reproduce", "target=table2", "-m"])
    with pytest.raises(SystemExit) as caught:
        command.main()
    assert caught.value.code == 1


def test_help_names_every_target(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["reproduce", "--help"])
    command.main()
    text = capsys.readouterr().out
    assert all(f"\n  {target} " in text for target in targets())
