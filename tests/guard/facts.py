"""What a command has left in its folder, as plain values that JSON keeps.

Floats are texts of all their bits (``float.hex``). A number that is measured, such as a time, has no value here, but
its name is among those of ``measured``: so the names of all fields are compared, at every depth. A list of epochs or
ranks is turned into a list for each field, or one value where all of them are equal.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

BITS = "sha256:"
"""Before a sum of all bits."""

_MEASURED = re.compile(
    r"_time_ms$|_time_s$|^time_ms$|_per_s$|^comm_hidden$|^peak_memory_bytes|^replayed$"
    r"|^(versions|hardware|git_commit|run_dir|prepared)$"
)
_UNDEFINED_IN_DRY_RUNS = re.compile(r"loss$|_accuracy$|^best_epoch$")
"""A dry run reads rows that nobody has sent."""


def facts_of(module: str, folder: Path) -> dict[str, Any]:
    """What ``fullgnn.<module>`` has written to ``folder``."""
    if module == "plan":
        options = json.loads((folder / "plan.json").read_text())
        for option in options:  # the recording is older than this field
            assert option.pop("scheme") == ("1d" if option["replication"] == 1 else "1.5d")
        return {"options": columns(hexed(options))}
    return _predictions(folder) if module == "predict" else _run(folder)


def _run(folder: Path) -> dict[str, Any]:
    record = json.loads((folder / "record.json").read_text())
    dry = record["dry_run_rank"] is not None
    in_cache = record["prepared"] is not None and record["load_time_s"] == 0
    predicted = hexed(record.pop("predicted"))
    ranks = [kept(rank, dry) for rank in record.pop("ranks")]
    epochs = [kept(json.loads(line), dry) for line in (folder / "epochs.jsonl").read_text().splitlines()]
    facts: dict[str, Any] = {
        "files": sorted(path.name for path in folder.iterdir()),
        "record": kept(record, dry),
        "ranks": columns(ranks),
        "epochs": columns(epochs),
        "predicted": predicted,
        "read_a_prepared_graph": in_cache,
    }
    if checkpoints := sorted(folder.glob("checkpoints/*")):
        facts["checkpoints"] = [path.name for path in checkpoints]
        facts["last_checkpoint"] = {file.stem: _checkpoint(file) for file in sorted(checkpoints[-1].glob("*.pt"))}
    if (folder / "predictions.npz").exists():
        with np.load(folder / "predictions.npz") as arrays:
            facts["predictions"] = {name: array_facts(array) for name, array in sorted(arrays.items())}
    return facts


def _predictions(folder: Path) -> dict[str, Any]:
    facts: dict[str, Any] = {file.name: array_facts(np.load(file)) for file in sorted(folder.glob("*.npy"))}
    if (folder / "metrics.json").exists():
        about = json.loads((folder / "metrics.json").read_text())
        facts["metrics.json"] = hexed({key: value for key, value in about.items() if key != "checkpoint"})
    return facts


def _checkpoint(file: Path) -> Any:
    """What a checkpoint holds: names, and of each tensor its type, its shape and its bits. Of the configuration, names
    alone."""
    content = torch.load(file, weights_only=True)
    return {key: sorted(value) if key == "config" else _outline(value) for key, value in sorted(content.items())}


def _outline(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return array_facts(value.detach().numpy())[:2]
    if isinstance(value, dict):
        return {str(key): _outline(part) for key, part in value.items()}
    return [_outline(part) for part in value] if isinstance(value, list | tuple) else hexed(value)


def array_facts(array: np.ndarray) -> list[str]:
    """Type and shape, the beginning of the SHA-256 of the bits, and for floats the mean magnitude."""
    digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
    facts = [f"{array.dtype} {list(array.shape)}", f"{BITS}{digest[:12]}"]
    return [*facts, float(np.abs(array.astype(np.float64)).mean()).hex()] if array.dtype.kind == "f" else facts


def kept(values: dict[str, Any], dry: bool = False) -> dict[str, Any]:
    """The ``values`` of a record or of a line of ``epochs.jsonl``, with those that are measured as names alone.

    Args:
        dry: whether they are those of a dry run.
    """
    result: dict[str, Any] = {}
    measured: list[str] = []
    for key, value in values.items():
        if _MEASURED.search(key) or (dry and (_UNDEFINED_IN_DRY_RUNS.search(key) or key == "metrics")):
            within = isinstance(value, dict) and key not in ("versions", "hardware")
            measured += [f"{key}/{name}" for name in value] if within else [key]
        elif isinstance(value, dict):
            result[key] = kept(value, dry)
        else:
            result[key] = hexed(value)
    return {**result, "measured": sorted(measured)} if measured else result


def columns(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """By field of the ``rows``, its values; one value where all rows have the same. A field may lie in another."""
    flat = [dict(_flat(row)) for row in rows]
    names = dict.fromkeys(name for row in flat for name in row)
    lists = {name: [row.get(name, "absent") for row in flat] for name in names}
    same = {name: all(value == values[0] for value in values) for name, values in lists.items()}
    return {"count": len(rows), **{name: values[0] if same[name] else values for name, values in lists.items()}}


def _flat(value: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, part in value.items():
        if isinstance(part, dict):
            yield from _flat(part, f"{before}{key}/")
        else:
            yield f"{before}{key}", part


def hexed(value: Any) -> Any:
    """``value`` with the bits of its floats as texts."""
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, dict):
        return {key: hexed(part) for key, part in value.items()}
    return [hexed(part) for part in value] if isinstance(value, list) else value
