"""The command of the README that makes named predictions of a CSV file with ids that are texts."""

import re
import shlex
import shutil
import sys
from pathlib import Path

import pandas

from tests.commands import run_command

ROOT = Path(__file__).parents[1]


def test_the_command_for_your_own_graph(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    sections = re.findall(r"^## (.*)", readme, re.MULTILINE)
    assert sections.index("Your own graph") == 2 < sections.index("The papers' tables and figures")
    block = readme.partition("## Your own graph\n")[2].partition("```bash\n")[2].partition("```")[0]
    python, *arguments = shlex.split(block.replace("\\\n", " "))
    assert python == "python"
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    done = run_command([sys.executable, *arguments[:2]], *arguments[2:], "runtime.device=cpu", cwd=tmp_path)
    assert done.status == 0, done.output
    assert (tmp_path / "examples/letters/edges.csv").read_text().count("\n") == 50
    people = pandas.read_csv(tmp_path / "examples/letters/people.csv")
    predicted = pandas.read_csv(tmp_path / "runs/letters/predictions.csv")
    assert predicted["node"].tolist() == people["name"].tolist()
    known = people["split"] == "train"
    assert known.sum() == 9 and (predicted["prediction"] == people["label"])[known].all()
    assert set(predicted["prediction"]) == set(people["label"].dropna())
    assert predicted["probability"].between(1 / 3, 1).all()
