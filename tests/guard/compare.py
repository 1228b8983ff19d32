"""Where two recordings differ: to the bit on machines with one signature, or within a tolerance on others."""

import math
from typing import Any

from tests.guard.facts import BITS

RELATIVE = 1e-4
"""Tolerance of a number where torch, the CPU or a library is another one: rounding grows over the epochs."""
OF_ONE_NODE = 0.13
"""Tolerance there of a metric, which is a count of nodes: one node of eight may be on the other side of a tie."""


_FOLLOW_METRICS = ("best_epoch", "confusion")
"""Fields that another node on the other side of a tie may change by any number."""

_PEAK = "peak_tensor_bytes"
"""The field that changes by some bytes from run to run."""


def differences(recorded: Any, now: Any, exact: bool, where: str = "") -> list[str]:
    """One line for each place at which ``now`` differs from ``recorded``; empty: nowhere.

    Args:
        exact: compare floats to the bit. Otherwise by ``RELATIVE``, and no sums of bits.
    """
    if where.endswith("/measured") and _are_names(recorded) and _are_names(now):
        recorded, now = dict.fromkeys(recorded), dict.fromkeys(now)
    if isinstance(recorded, dict) and isinstance(now, dict):
        lines = [f"{where}: {key} is gone" for key in recorded if key not in now]
        lines += [f"{where}: {key} is new" for key in now if key not in recorded]
        common = [key for key in recorded if key in now]
        return lines + [
            line for key in common for line in differences(recorded[key], now[key], exact, f"{where}/{key}")
        ]
    if isinstance(recorded, list) and isinstance(now, list):
        if len(recorded) != len(now):
            return [f"{where}: {len(recorded)} -> {len(now)} items"]
        pairs = enumerate(zip(recorded, now, strict=True))
        return [line for number, (a, b) in pairs for line in differences(a, b, exact, f"{where}/{number}")]
    if recorded == now and type(recorded) is type(now):
        return []
    if _PEAK in where and isinstance(now, int) and math.isclose(recorded, now, rel_tol=0.01, abs_tol=500):
        return []
    if not exact and any(f"/{name}" in where for name in _FOLLOW_METRICS):
        return []
    if not exact and ((isinstance(recorded, str) and recorded.startswith(BITS)) or _close(recorded, now, where)):
        return []
    return [f"{where}: {_shown(recorded)} -> {_shown(now)}"]


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _close(recorded: Any, now: Any, where: str) -> bool:
    a, b = _number(recorded), _number(now)
    if a is None or b is None:
        return False
    key = where.rpartition("/")[2]
    is_metric = key.startswith(("train_", "val_", "test_", "final_test_")) or "/metrics" in where
    return math.isclose(a, b, rel_tol=RELATIVE, abs_tol=OF_ONE_NODE if is_metric else 1e-9)


def _number(value: Any) -> float | None:
    """The float of a text of ``float.hex``; None: it is none."""
    try:
        return float.fromhex(value) if isinstance(value, str) and "p" in value else None
    except ValueError:
        return None


def _shown(value: Any) -> str:
    number = _number(value)
    return repr(value)[:100] if number is None else f"{number!r}"
