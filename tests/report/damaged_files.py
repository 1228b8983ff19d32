"""Damage to the files of a run, and to others with JSON."""

import json
import math
from typing import Any

import numpy as np

from tests.damage import damaged, damaged_text

FILES = ("record.json", "epochs.jsonl", "structure.npz", "config.yaml")
VALUES = (None, True, -1, 0, 2**80, 1e308, "x", [], {}, [[]], {"a": {}})


def damaged_json(content: bytes, seed: int) -> bytes:
    """A JSON text with a damage drawn from ``seed``: of a byte, a number or a value, or one of great depth."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(5)
    if kind == 0:
        return damaged(content, seed)
    if kind == 1:
        return damaged_text(content, seed)
    if kind == 2 and seed % 20 == 0:
        return b"[" * 100_000
    if kind == 2:
        return content.replace(b":", rng.choice([b": NaN,", b": 1e999,", b": " + b"9" * 400 + b", "]) + b'"more":', 1)
    lines = content.split(b"\n")
    at = int(rng.integers(max(1, len(lines) - 1)))
    told = json.loads(lines[at])
    places: list[Any] = [told]
    for place in places:
        inside = list(place.values()) if isinstance(place, dict) else place
        places += [child for child in inside if isinstance(child, dict | list) and child]
    place = places[int(rng.integers(len(places)))]
    key = int(rng.integers(len(place))) if isinstance(place, list) else list(place)[int(rng.integers(len(place)))]
    if kind == 3:
        del place[key]
    else:
        place[key] = VALUES[int(rng.integers(len(VALUES)))]
    lines[at] = json.dumps(told).encode()
    return b"\n".join(lines)


def finite(node: Any) -> Any:
    """What is left of JSON values when numbers that are not finite are null."""
    if isinstance(node, dict):
        return {key: finite(child) for key, child in node.items()}
    if isinstance(node, list):
        return [finite(child) for child in node]
    return None if isinstance(node, float) and not math.isfinite(node) else node
