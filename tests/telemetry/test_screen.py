"""Texts that are folded to the columns of the screen stay what they are: commands, columns, comments, paragraphs; and
aligned Markdown tables, readable sizes and shares, the table of a sweep."""

import shlex

import pytest

from fullgnn.report.sweep import sweep_table
from fullgnn.telemetry.folded_help import folded_help
from fullgnn.telemetry.screen import (
    folded,
    folded_command,
    format_narrow_table,
    format_table,
    num_bytes,
    percent,
    screen_width,
    shares,
)

HELP = """One sentence about what it is for, which is so long that it needs a second line, and some words more than it.
It goes on here.

    python -m fullgnn.plan num_nodes=111059956 num_edges=3200000000 num_features=128 'a b=[1, 2]' hardware=a100x8
    python -m fullgnn.plan short=1

    out=FOLDER        this folder
                      without it: another one, that has a very long description, which fills a line of its own

# What is measured; null takes all choices.
first: null                # of this and of that and of some more things, so that it must be folded here; null:
                           # none
{long}: 1  # a comment
  second: [1, 2]
last: 2
"""


def test_a_help_is_folded_where_it_is_too_wide() -> None:
    key = "out_of_a_run_that_has_a_very_long_name_and_more"
    lines = folded_help(HELP.replace("{long}", key)).split("\n")
    assert lines == [
        "One sentence about what it is for, which is so long that it needs a second line,",
        "and some words more than it. It goes on here.",
        "",
        "    python -m fullgnn.plan num_nodes=111059956 num_edges=3200000000 \\",
        "        num_features=128 'a b=[1, 2]' hardware=a100x8",
        "    python -m fullgnn.plan short=1",
        "",
        "    out=FOLDER        this folder",
        "                      without it: another one, that has a very long description,",
        "                      which fills a line of its own",
        "",
        "# What is measured; null takes all choices.",
        "first: null                # of this and of that and of some more things, so",
        "                           # that it must be folded here; null: none",
        f"{key}: 1  # a comment",
        "  second: [1, 2]",
        "last: 2",
        "",
    ]


def test_a_comment_behind_a_long_key_stands_below_it() -> None:
    key = "out: runs/" + "x" * 50
    assert folded_help(f"{key}  # folder of some files") == f"{key}\n    # folder of some files"


@pytest.mark.parametrize(
    "command",
    [
        "python -m fullgnn.train a=1",
        "python -m fullgnn.train " + " ".join(f"key{k}=value" for k in range(30)),
        "python -m fullgnn.train 'run_dir=\"a b c d e f g h i j k l m n\"' 'x=it'\"'\"'s' \"y=[1, 2]\" z=a\\ b" * 3,
    ],
)
def test_a_folded_command_is_the_same_command(command: str) -> None:
    folded_text = folded_command(command, 60, "    ")
    assert shlex.split(folded_text.replace("\\\n", " ")) == shlex.split(command)
    assert all(len(line) <= 60 for line in folded_text.splitlines())


def test_sentences_are_folded_at_words() -> None:
    assert folded("one two-three four", 9) == "one\ntwo-three\nfour"


def test_there_is_a_width_without_a_terminal() -> None:
    assert screen_width() == 80


def test_a_table_lacks_the_columns_that_say_least() -> None:
    header, rows = ["name", "first", "second", "third"], [["a", "1", "2", "3"]]
    assert format_narrow_table(header, rows, 100, ["second"]) == (
        "| name | first | second | third |\n|:-----|------:|-------:|------:|\n| a    |     1 |      2 |     3 |",
        [],
    )
    table, lacking = format_narrow_table(header, rows, 25, ["none", "second", "first", "third"])
    assert table.splitlines()[0] == "| name | first | third |" and lacking == ["second"]
    table, lacking = format_narrow_table(header, rows, 3, ["second", "first"])
    assert table.splitlines()[0] == "| name | third |" and lacking == ["second", "first"]


def test_columns_align() -> None:
    table = format_table(("name", "value"), [("a", "1"), ("longer", "10.5")])
    assert table.splitlines() == [
        "| name   | value |",
        "|:-------|------:|",
        "| a      |     1 |",
        "| longer |  10.5 |",
    ]


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (2.5e6, "2.50 MB"), (3e9, "3.00 GB"), (4e12, "4000.00 GB")],
)
def test_sizes(count: float, text: str) -> None:
    assert num_bytes(count) == text


def test_shares() -> None:
    assert (percent(0.81249), percent(None)) == ("81.25 %", "-")


@pytest.mark.parametrize(
    ("parts", "texts"),
    [
        ([1, 1, 1], ["34 %", "33 %", "33 %"]),
        ([0.5, 0.25, 0.25, 0], ["50 %", "25 %", "25 %", "0 %"]),
        ([2, 2, 2, 1], ["29 %", "29 %", "28 %", "14 %"]),
        ([3, -1], ["100 %", "0 %"]),
        ([0, 0], ["-", "-"]),
        ([], []),
    ],
)
def test_shares_of_a_whole_add_up(parts: list[float], texts: list[str]) -> None:
    assert shares(parts) == texts


def row(overrides: str, **changes: object) -> dict:
    measured = ("epoch_time_ms", "spmm_time_ms", "comm_time_ms", "comm_bytes_per_epoch", "nnz_imbalance", "final_loss")
    return {
        "overrides": overrides,
        "status": "ok",
        "val_accuracy": None,
        "test_accuracy": 0.5,
        **changes,
    } | dict.fromkeys(measured, 1.0)


def test_a_job_is_named_by_what_sets_it_apart() -> None:
    lines = sweep_table([row("seed=0 optimizer.lr=1"), row("seed=1 optimizer.lr=1", status="failed")]).splitlines()
    assert lines[2].startswith("| seed=0 |     ok |") and lines[2].endswith("|   - | 50.00 % |       |")
    assert lines[3].startswith("| seed=1 | failed |") and "1.00" not in lines[3]
    assert len({len(line) for line in lines}) == 1


def test_a_job_that_diverged_has_no_loss() -> None:
    (line,) = sweep_table([row("seed=0") | {"final_loss": None}]).splitlines()[2:]
    assert line.split("|")[8].strip() == "-" and " ok " in line


def test_a_single_job_keeps_its_name() -> None:
    assert sweep_table([row("seed=0 optimizer.lr=1")]).splitlines()[2].startswith("| seed=0 optimizer.lr=1 |")


def test_another_metric_takes_the_place_of_an_accuracy_that_no_job_has() -> None:
    scores = {"train_micro_f1": 0.9, "val_micro_f1": 0.81234567, "test_micro_f1": None, "val_roc_auc": 0.5}
    jobs = [row("seed=0", test_accuracy=None) | scores, row("seed=1", test_accuracy=None)]
    jobs.append({"overrides": "seed=2", "status": "failed", "error": "out of memory"})
    header, _, *lines = sweep_table(jobs).splitlines()
    assert [cell.strip() for cell in header.split("|")[-4:-1]] == ["val micro_f1", "test micro_f1", "error"]
    cells = [[cell.strip() for cell in line.split("|")[-4:-1]] for line in lines]
    assert cells == [["0.812346", "-", ""], ["-", "-", ""], ["-", "-", "out of memory"]]
    assert "accuracy" not in header
    assert sweep_table([row("seed=0") | scores]) == sweep_table([row("seed=0")])  # it has an accuracy of the test nodes
