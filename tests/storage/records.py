"""A record with a value in every field, and checkpoints that were changed."""

from pathlib import Path
from typing import Any, get_type_hints

from fullgnn.storage.checkpoint import FILES, FORMAT, sum_of
from fullgnn.storage.record import RunRecord, strict_json

VALUES: dict[Any, Any] = {int: 3, float: 0.5, bool: True, str: "text"}


def whole_record() -> dict[str, Any]:
    """A value of the right type for each field of ``record.json``: null where it may be."""
    record = {}
    for name, hint in get_type_hints(RunRecord).items():
        text = str(hint)
        record[name] = VALUES[hint] if hint in VALUES else None if text.endswith(" | None") else {}
        record[name] = [] if text.startswith("list") else record[name]
    return record


def seal(checkpoint: Path) -> None:
    """Write ``files.json`` of a checkpoint anew, with the checksums of the files that are there."""
    sums = {file.name: sum_of(file) for file in checkpoint.glob("*.pt")}
    (checkpoint / FILES).write_text(strict_json({"format": FORMAT, "files": sums}))
