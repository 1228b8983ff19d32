"""What a resumed run says stands once on the screen, whoever starts its ranks."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.commands import Finished, run_command
from tests.trainings import EACH_WAY, WAYS

RUN = ["dataset=karate", "runtime.device=cpu", "runtime.nproc=2", "resume=auto", "run_dir=run"]
CHECKPOINTS = Path("run") / "checkpoints"


def remarks(done: Finished) -> list[str]:
    """The lines about what the run goes on from, and about its checkpoints."""
    lines = re.findall(r"(?m)^.*(?:resume|holds|files\.json|state\.pt|nothing is left).*$", done.output)
    assert lines and "Traceback" not in done.output, done.output
    return lines


def damage(folder: Path, *epochs: int) -> None:
    for epoch in epochs:
        (folder / CHECKPOINTS / f"epoch_{epoch:06d}" / "files.json").write_text("damaged")


@pytest.mark.parametrize("way", EACH_WAY)
def test_each_remark_is_said_once(way: str, tmp_path: Path) -> None:
    def run(epochs: int) -> Finished:
        return run_command(WAYS[way], *RUN, "train.checkpoint_every=1", f"train.epochs={epochs}", cwd=tmp_path)

    (anew,) = remarks(run(2))
    assert re.fullmatch(r"resume=auto: run_dir=\S*run holds no checkpoint, so the run begins anew", anew)
    damage(tmp_path, 2)
    damaged, resumed = remarks(run(3))
    assert "warning: " in damaged and "epoch_000002" in damaged and "resumes after epoch 1 of " in resumed
    finished = remarks(run(3))
    assert len(finished) == len(set(finished)) and re.search(r"has finished$|nothing is left to train$", finished[-1])

    if way != "torchrun":  # whose ranks all end with the error
        damage(tmp_path, 2, 3)  # the two that are kept
        done = run(4)
        assert done.status == 1
        (error,) = done.errors
        named = Counter(re.findall(r"(epoch_\d{6})/files\.json cannot be read", done.output))
        assert named == {"epoch_000002": 1, "epoch_000003": 1} and "epoch_000003" in error
