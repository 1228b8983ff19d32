"""Run an operation inside the ranks of a test, and read the record that the operation writes."""

import json
from typing import Any

from fullgnn.bench.__main__ import operation
from fullgnn.bench.config import load_bench
from fullgnn.bench.harness import Outcome
from fullgnn.bench.record import keep
from fullgnn.distributed import World, from_rank0
from fullgnn.storage.folder import make_folder

SHORT = ("graph=tiny", "rounds=3", "epochs=4", "budget_s=1000", "threads=1", "cache_dir=null")


def operate(world: World, *overrides: str) -> str:
    """Run the operation of ``overrides`` on every rank of ``world``, and return its table."""
    cfg = load_bench(*SHORT, *overrides, f"nproc={world.size}")
    outcome = Outcome()
    for part in operation(cfg)(cfg, world):
        outcome.add(part)
    from_rank0(lambda: make_folder(cfg.out))
    return from_rank0(lambda: keep(cfg, world, outcome)) or ""


def read(folder: Any) -> dict[str, Any]:
    """``record.json``, which must be strict JSON."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads((folder / "record.json").read_text(), parse_constant=refuse)
