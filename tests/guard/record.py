"""Record what the present version computes, for the guard: ``recorded.json`` and the fixtures in ``before``.

    python -m tests.guard.record                       every case, and the fixtures
    python -m tests.guard.record --cases gcn plan      these cases; the others and the fixtures stay
    python -m tests.guard.record --to /tmp/mine.json   every case into another file; the fixtures stay

``recorded.json`` and ``before`` were made by the version before the ways of the commands were joined (commit 13d1950).
Record again only what a change means to change, and read the difference of the file before it is committed: every line
of it is a number, a name or a choice that users get. On a machine whose signature is another one, the tests compare
numbers within a tolerance. To compare bits there too, record with ``--to`` at the commit that last changed
``recorded.json``, and set ``FULLGNN_GUARD`` to that file when the tests run.
"""

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from tests.guard.cases import BEFORE, CASES, Command
from tests.guard.runs import run, run_case, signature

RECORDED = Path(__file__).parent / "recorded.json"
WIDTH = 150

RUN = "dataset=karate model.hidden_channels=4 model.embedding_channels=2 runtime.nproc=2 train.epochs=3"
"""The run of the fixtures, which has a checkpoint after its last epoch."""


def text_of(value: Any, indent: str = "") -> str:
    """``value`` as JSON, with whatever fits into a line in one line."""
    line = json.dumps(value)
    if len(indent) + len(line) <= WIDTH or not isinstance(value, dict | list):
        return line
    deeper = indent + " "
    if isinstance(value, dict):
        parts = [f"{deeper}{json.dumps(key)}: {text_of(part, deeper)}" for key, part in value.items()]
        return "{\n" + ",\n".join(parts) + f"\n{indent}}}"
    return "[\n" + ",\n".join(deeper + text_of(part, deeper) for part in value) + f"\n{indent}]"


def write_fixtures() -> None:
    """Replace ``before``: the checkpoint of a run without its record, and a cache with a prepared graph."""
    shutil.rmtree(BEFORE, ignore_errors=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        run(Command("train", "run", f"{RUN} train.checkpoint_every=3"), folder)
        prepared = Command("prepare", "prepared", "dataset=karate reorder=rcm runtime.nproc=2 runtime.cache_dir=cache")
        run(prepared, folder)
        shutil.copytree(folder / "run" / "checkpoints", BEFORE / "run" / "checkpoints")
        shutil.copy(folder / "run" / "epochs.jsonl", BEFORE / "run")
        shutil.copytree(folder / "cache", BEFORE / "cache")


def record(names: list[str], to: Path) -> None:
    """Run the cases ``names`` and write them to the file ``to``, in which other cases stay."""
    recorded = json.loads(to.read_text())["cases"] if to.exists() else {}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            recorded[name] = run_case(name, Path(folder).resolve())
        print(name)
    cases = {name: recorded[name] for name in CASES if name in recorded}
    to.write_text(text_of({"signature": signature(), "cases": cases}) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--to", type=Path, default=RECORDED)
    given = parser.parse_args()
    if given.cases is None and given.to == RECORDED:
        write_fixtures()
    record(given.cases or list(CASES), given.to)


if __name__ == "__main__":
    main()
