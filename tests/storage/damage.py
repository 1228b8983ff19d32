"""Damage files in many ways, and use them in forked children, where a crash, a hang or a hunger for memory is seen.

A child that uses a damaged file must either refuse it with a user error of one line, or come to the result that the
whole file gives. It has a deadline, and may take a limited amount of memory more than the process that it is forked
from.
"""

import os
import pickle
import random
import resource
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fullgnn.errors import FullGNNError

DEADLINE_S = 60  # of processor time of a child: other tests may use the machine
MEMORY_BYTES = 1 << 31


@dataclass(frozen=True)
class Outcome:
    """How a child has ended."""

    kind: str  # "result", "named", or what must not happen: "error", "signal 11"
    value: Any  # the result, the message of the user error, or the traceback


def in_child(function: Callable[..., Any], *args: Any) -> Outcome:
    """Call ``function(*args)`` in a fork of this process."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        outcome = _call(function, args)
        with os.fdopen(write_end, "wb") as pipe:
            pickle.dump(outcome, pipe)
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        content = pipe.read()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status) or not content:
        return Outcome(f"signal {os.WTERMSIG(status)}", "")
    return pickle.loads(content)


def _call(function: Callable[..., Any], args: tuple[Any, ...]) -> Outcome:
    with open("/proc/self/statm") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    limit = taken + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CPU, (DEADLINE_S, DEADLINE_S))
    torch.set_num_threads(1)  # the threads of the parent are not there
    signal.alarm(10 * DEADLINE_S)  # a child that waits for ever takes no processor time
    try:
        return Outcome("result", function(*args))
    except FullGNNError as error:
        return Outcome("named", str(error))
    except BaseException:
        return Outcome("error", traceback.format_exc())


def damage(content: bytes, seed: int) -> tuple[str, bytes]:
    """One damage of ``content``, and what it is called; the same for the same ``seed``."""
    chance = random.Random(seed)
    length = max(1, len(content))
    start, width = chance.randrange(length), chance.choice((1, 8, 64, 512))
    other = chance.randrange(length)
    kind = ("flip", "flip", "flip", "cut", "zero", "swap", "double", "noise", "append", "empty")[seed % 10]
    changed = bytearray(content)
    if kind == "flip" and content:
        changed[start] ^= 1 << chance.randrange(8)
    elif kind == "cut":
        del changed[start:]
    elif kind == "zero":
        changed[start : start + width] = bytes(len(changed[start : start + width]))
    elif kind == "swap":
        one, two = changed[start : start + width], changed[other : other + width]
        if abs(start - other) >= width and len(one) == len(two):
            changed[start : start + width], changed[other : other + width] = two, one
    elif kind == "double":
        changed[other:other] = changed[start : start + width]
    elif kind == "noise":
        changed[start : start + width] = chance.randbytes(width)
    elif kind == "append":
        changed += chance.randbytes(width)
    elif kind == "empty":
        changed.clear()
    return kind, bytes(changed)


ODD = (
    None,
    -1,
    0,
    2**31,
    10**30,
    1e300,
    float("nan"),
    True,
    "x",
    "${oc.env:HOME}",
    "x" * 5000,
    [],
    [1],
    {},
    {"a": [0]},
)
"""Values that take the place of others."""


def edited(tree: Any, seed: int, odd: tuple[Any, ...] = ODD) -> Any:
    """``tree``, of which one value, anywhere below mappings and lists, is removed or becomes one that is ``odd``."""
    chance = random.Random(seed)
    places = list(_places(tree))
    place = chance.choice(places)
    return _replaced(tree, place, chance.choice([*odd, _replaced]))


def _places(tree: Any) -> Any:
    items: Any = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield (key,)
        yield from ((key, *place) for place in _places(value))


def _replaced(tree: Any, place: tuple[Any, ...], value: Any) -> Any:
    """A copy of ``tree`` with ``value`` at ``place``; without that place if ``value`` is this function."""
    copy: Any = dict(tree) if isinstance(tree, dict) else list(tree)
    key, *rest = place
    if rest:
        copy[key] = _replaced(copy[key], tuple(rest), value)
    elif value is _replaced:
        del copy[key]
    else:
        copy[key] = value
    return copy


def assert_named_or_equal(outcome: Outcome, whole: Any, case: str, any_result: bool = False) -> None:
    """Check that a child has refused the damage in one line, or has the result of the ``whole`` file.

    Args:
        any_result: the file was edited, not damaged: another result is right too.
    """
    if outcome.kind == "named":
        assert outcome.value and "\n" not in outcome.value, case
        assert len(outcome.value) < 2000, (case, outcome.value)
        return
    assert outcome.kind == "result", f"{case}: {outcome.kind}\n{outcome.value}"
    assert any_result or outcome.value == whole, case


def each_file(folder: Path) -> list[Path]:
    """All files in ``folder`` and below, in a fixed order."""
    return sorted(path for path in folder.rglob("*") if path.is_file())
