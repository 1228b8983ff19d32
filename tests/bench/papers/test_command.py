"""The command ``reproduce``: its targets, its keys, its one-line errors, and the files that a target leaves."""

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from fullgnn import reproduce as command
from fullgnn.bench.config import presets
from fullgnn.bench.papers.config import cases_of, load_target, run, schema_of, split_arguments, targets, title_of
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
    "table3": {
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
        "+tolerance=1": "unknown key tolerance: ",  # of fig7 alone
    },
    "pagraph_fig13": {
        "case=fig9": "case=fig9 is not known: choose one of graphs, hits, accesses, saved, parts, partition_time",
        "shares=[101]": "shares=101 is out of range: give 0 to 100",
        "shares=[]": "shares=[] leaves nothing to do: give at least one",
        "parts=[0]": "parts=0 is out of range: give 1 to 65536",
        "train_fraction=0": "train_fraction=0 is out of range: give more than 0 and at most 1",
    },
    "pagraph_fig11": {
        "chosen_models=[gat]": "chosen_models=gat is not known",
        "samplers=[]": "samplers=[] leaves nothing to do: give at least one",
        "samplers=[cluster]": "samplers=cluster is not known: choose one of neighbor, layer",
        "chosen_ways=[fast]": "chosen_ways=fast is not known: choose one of plain, PP, cached, cached + PP",
        "ranks=[0]": "ranks=0 is out of range: it must be at least 1",
        "all_fanouts=[[2]]": "all_fanouts has [2]: give two numbers or more, each at least 1",
        "layer_sizes=[5]": "layer_sizes=[5] is too short: give two numbers or more",
    },
    "time_to_accuracy": {
        "seeds=[]": "seeds=[] leaves nothing to do: give at least one",
        "processes=[]": "processes=[] leaves nothing to do: give at least one",
        "processes=[0]": "processes=0 is out of range: it must be at least 1",
        "chosen_runs=[Pubmed]": "chosen_runs=Pubmed is not known: choose one of PubMed, ",
        "chosen_runs=[]": "chosen_runs=[] leaves nothing to do: give at least one",
        "fraction=0": "fraction=0 is out of range: give more than 0 and at most 1",
        "fraction=1.1": "fraction=1.1 is out of range: give more than 0 and at most 1",
        "~runs.PubMed.ways.full": "runs.PubMed.ways lacks full, with which the others are compared: add it",
    },
}


def refuse(split_or_run: Callable[[], object], line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        split_or_run()
    assert str(caught.value).startswith(line) and "\n" not in str(caught.value)


@pytest.mark.parametrize("arguments", WRONG_ARGUMENTS)
def test_a_wrong_target_is_one_line(arguments: str) -> None:
    refuse(lambda: split_arguments(arguments.split()), WRONG_ARGUMENTS[arguments])


@pytest.mark.sample(3)
@pytest.mark.parametrize(("target", "key"), [(target, key) for target, keys in WRONG_KEYS.items() for key in keys])
def test_a_wrong_key_is_one_line(target: str, key: str) -> None:
    refuse(lambda: run(target, load_target(target, "device=cpu", key)), WRONG_KEYS[target][key])


def test_targets_out_and_the_rest_are_told_apart() -> None:
    assert split_arguments(["target=[table3,table2]", "scale=1", "out=x"]) == (["table3", "table2"], "x", ["scale=1"])
    assert split_arguments(["target=all"]) == (targets(), None, [])


@pytest.mark.sample(9)
@pytest.mark.parametrize("target", targets())
def test_every_target_has_a_row_and_a_title(target: str) -> None:
    cfg = load_target(target)
    assert getattr(cfg, "case", target) in cases_of(target)
    assert isinstance(cfg, schema_of(target))
    assert cfg.title == title_of(target)
    assert cfg.title.startswith(("Table ", "Figure ", "Shares ", "Time ", "Memory ", "Hits "))
    assert cfg.device in ("cpu", "cuda")
    assert cfg.threads >= 1


def test_a_target_has_the_keys_that_its_yaml_names() -> None:
    assert hasattr(load_target("fig7"), "tolerance") and not hasattr(load_target("table3"), "tolerance")


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
    for name, error in (("table3", UnsupportedError("no such thing here")), ("fig7", ZeroDivisionError("here"))):
        failing = replace(cases_of(name)[name], cases=Mock(side_effect=error))
        monkeypatch.setitem(cases_of(name), name, failing)
    assert command.run_all(["table3", "fig7", "table2"], [], tmp_path) == ["table3", "fig7"]
    index = (tmp_path / "index.md").read_text()
    assert "- failed: table3: no such thing here" in index and "- failed: fig7: ZeroDivisionError: here" in index
    assert "- [table2](table2/table2.md)" in index and (tmp_path / "table2" / "record.json").exists()
    assert not (tmp_path / "table3" / "error.txt").exists()  # a user error has no traceback
    assert "Traceback" in (tmp_path / "fig7" / "error.txt").read_text()


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
