"""TensorBoard's event files hold the numbers of ``epochs.jsonl``."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from fullgnn.distributed import World
from fullgnn.errors import UnsupportedError
from fullgnn.storage.record import RunRecord
from fullgnn.train import run_on
from tests.cases import config

RUN = ["dataset=karate", "train.epochs=5", "train.eval_every=2", "runtime.dtype=float64"]


def trained(world: World, overrides: list[str]) -> RunRecord:
    return run_on(world, config(*overrides))


def without_tensorboard(world: World, overrides: list[str]) -> tuple[str, bool]:
    """The error of this rank, and whether anything was prepared."""
    present = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "tensorboard"}
    torchs = sys.modules.pop("torch.utils.tensorboard", None)
    sys.modules.update(dict.fromkeys([*present, "tensorboard"]))
    try:
        run_on(world, config(*overrides))
    except UnsupportedError as error:
        return str(error), Path(overrides[-1].partition("=")[2], "epochs.jsonl").exists()
    finally:
        del sys.modules["tensorboard"]
        sys.modules.update(present)
        if torchs is not None:
            sys.modules["torch.utils.tensorboard"] = torchs
    return "", True


def points(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """The points of each tag, as TensorBoard reads them."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator").EventAccumulator
    events = accumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_events_are_the_lines_of_epochs(ranks, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    for _ in range(2):  # the second run removes the events of the first
        ranks(2)(trained, [*RUN, "train.tensorboard=true", "overwrite=true", f"run_dir={tmp_path}"])
    (_file,) = (tmp_path / "tensorboard").iterdir()  # two ranks, one file
    expected: dict[str, list[tuple[int, float]]] = {}
    for line in map(json.loads, (tmp_path / "epochs.jsonl").read_text().splitlines()):
        scalars = {"loss/train": line["loss"]}
        scalars |= {f"accuracy/{split}": line.get(f"{split}_accuracy") for split in ("train", "val", "test")}
        scalars |= {
            f"{group}/{name}": value for group in ("time_ms", "bytes_received") for name, value in line[group].items()
        }
        for tag, value in scalars.items():
            if value is not None:
                expected.setdefault(tag, []).append((line["epoch"], float(np.float32(value))))
    assert points(tmp_path / "tensorboard") == expected
    assert [epoch for epoch, _ in expected["accuracy/val"]] == [2, 4, 5] and len(expected["time_ms/spmm"]) == 5


def test_without_the_key_there_are_none(ranks, tmp_path: Path) -> None:
    ranks(1)(trained, [*RUN, f"run_dir={tmp_path}"])
    assert not (tmp_path / "tensorboard").exists()


def test_every_rank_says_that_tensorboard_is_missing_before_anything_is_prepared(ranks, tmp_path: Path) -> None:
    line = "train.tensorboard=true needs the package tensorboard: pip install tensorboard, or leave it out"
    said = ranks(2)(without_tensorboard, [*RUN, "train.tensorboard=true", f"run_dir={tmp_path}"])
    assert said == [(line, False)] * 2
