"""Helpers that test_predict.py shares with other test modules."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from fullgnn.distributed import World
from fullgnn.predict import load_request, predict_on
from fullgnn.schemes import gather
from fullgnn.storage.record import RunRecord
from fullgnn.train import run_on
from tests.cases import config
from tests.ranks import Ranks

MakeRanks = Callable[[int], Ranks]


TRAINING = (
    "runtime.device=cpu",
    "runtime.dtype=float64",
    "train.epochs=9",
    "train.checkpoint_every=4",
    "train.save_predictions=true",
)


MACHINE = "runtime.device=cpu"


def train(ranks: MakeRanks, run_dir: Path, *overrides: str) -> Path:
    """A run on two ranks."""
    ranks(2)(_train, *TRAINING, f"run_dir={run_dir}", *overrides)
    return run_dir


def _train(world: World, *overrides: str) -> RunRecord:
    return run_on(world, config(*overrides))


def predict(ranks: MakeRanks, num_ranks: int, out: Path, *overrides: str) -> dict[str, np.ndarray]:
    """The arrays that the command writes on ``num_ranks`` ranks."""
    ranks(num_ranks)(_predict, MACHINE, f"out={out}", *overrides)
    return {file.stem: np.load(file, mmap_mode="r") for file in out.glob("*.npy")}


def _predict(world: World, *overrides: str) -> None:
    with mock.patch.object(gather, "PART_BYTES", 200):  # several parts from each rank
        predict_on(world, load_request([*overrides]))


def metrics_of(out: Path) -> dict[str, Any]:
    return json.loads((out / "metrics.json").read_text())
