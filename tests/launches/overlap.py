"""Accesses of one launch to one address, in an order that a GPU does not keep.

Reads and atomic operations may share an address, as may two of one kind. A plain write shares its address with no
other program, and inside its program only with accesses of the same thread, or with accesses that a barrier separates.
Which thread has an element is not known here: elements at the same place of blocks of the same size count as one
thread's. The accesses of a launch have one size, as far as they share addresses.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

READ, WRITE, ATOMIC = range(3)

TWO_PROGRAMS_WRITE = "two programs write"
READ_OF_A_WRITE = "a program accesses what another one writes"
ONE_STORE_TWICE = "one store writes twice"
NO_BARRIER = "two threads of a program access, at least one of them writing, with no barrier between"


@dataclass(frozen=True)
class Access:
    """The addresses that one operation of one program touches."""

    kind: int
    program: int
    barriers: int  # that the program had passed
    addresses: NDArray[np.uint64]
    places: NDArray[np.int64]  # of the addresses in the operation's block
    block_size: int


def overlaps(accesses: Sequence[Access]) -> Iterator[tuple[str, int, int, int]]:
    """For each kind of overlap that occurs: the kind, an address, and the numbers of two programs.

    Args:
        accesses: of one launch, in the order in which the interpreter made them.
    """
    writes = _columns([access for access in accesses if access.kind == WRITE])
    if writes is None:
        return
    address, program, operation, thread, barriers = writes
    same = address[1:] == address[:-1]
    yield from _first(TWO_PROGRAMS_WRITE, same & (program[1:] != program[:-1]), address[1:], program[:-1], program[1:])
    together = same & (operation[1:] == operation[:-1])
    yield from _first(ONE_STORE_TWICE, together, address[1:], program[:-1], program[1:])
    close = same & ~together & (program[1:] == program[:-1]) & (barriers[1:] == barriers[:-1])
    yield from _first(NO_BARRIER, close & (thread[1:] != thread[:-1]), address[1:], program[:-1], program[1:])

    others = _columns([access for access in accesses if access.kind != WRITE], address[0], address[-1])
    if others is None:
        return
    at, reader, _, reading_thread, passed = others
    # The programs ran one after another, so the first and the last write of an address tell whether any is another's.
    for side, step in (("left", 0), ("right", -1)):
        place = np.clip(np.searchsorted(address, at, side) + step, 0, len(address) - 1)
        hit = address[place] == at
        yield from _first(READ_OF_A_WRITE, hit & (program[place] != reader), at, program[place], reader)
        close = hit & (program[place] == reader) & (barriers[place] == passed)
        yield from _first(NO_BARRIER, close & (thread[place] != reading_thread), at, program[place], reader)


def _columns(
    accesses: Sequence[Access], low: int = 0, high: int = 2**64 - 1
) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]] | None:
    """Address, program, operation, thread and passed barriers of everything between two addresses, by address and then
    by time; None if there is nothing."""
    kept = [
        (number, access, inside)
        for number, access in enumerate(accesses)
        if (inside := (access.addresses >= low) & (access.addresses <= high)).any()
    ]
    if not kept:
        return None
    address = np.concatenate([access.addresses[inside] for _, access, inside in kept])
    thread = np.concatenate([access.places[inside] + (access.block_size << 32) for _, access, inside in kept])
    counts = [inside.sum() for _, _, inside in kept]
    numbers = np.array([(access.program, number, access.barriers) for number, access, _ in kept], np.int64)
    program, operation, barriers = np.repeat(numbers, counts, axis=0).T
    order = np.argsort(address, kind="stable")
    return address[order], program[order], operation[order], thread[order], barriers[order]


def _first(
    kind: str,
    wrong: NDArray[np.bool_],
    address: NDArray[np.uint64],
    program: NDArray[np.int64],
    other: NDArray[np.int64],
) -> Iterator[tuple[str, int, int, int]]:
    if wrong.any():
        place = int(np.argmax(wrong))
        yield kind, int(address[place]), int(program[place]), int(other[place])
