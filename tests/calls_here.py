"""Helpers that test_here.py shares with other test modules."""

import json
from pathlib import Path
from typing import Any

from fullgnn.graph import Graph
from fullgnn.graph.datasets import karate
from fullgnn.storage.record import RunRecord

CPU = {"runtime": {"device": "cpu"}, "train": {"epochs": 6}}
OF_TIME = ("time", "peak_memory", "ranks", "setup_time_s", "comm_hidden", "run_dir")
"""Parts of the names of fields that differ between two runs of the same kind."""


def curve(run_dir: str) -> list[dict[str, Any]]:
    """The lines of ``epochs.jsonl`` without times."""
    lines = [json.loads(line) for line in Path(run_dir, "epochs.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "time_ms"} for line in lines]


def comparable(record: RunRecord) -> dict[str, Any]:
    """The fields of a record that two runs of the same kind share."""
    return {name: value for name, value in vars(record).items() if not any(part in name for part in OF_TIME)}


def club() -> Graph:
    return karate.load(train_per_class=4, num_val=8, seed=0)
