"""Texts that are folded to the columns of the screen stay what they are: commands, columns, comments, paragraphs."""

import shlex

import pytest

from fullgnn.telemetry.screen import folded, folded_command, folded_help, screen_width
from fullgnn.telemetry.table import format_narrow_table

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
    found = folded_command(command, 60, "    ")
    assert shlex.split(found.replace("\\\n", " ")) == shlex.split(command)
    assert all(len(line) <= 60 for line in found.splitlines())


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
