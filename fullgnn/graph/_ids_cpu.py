"""Compiled hash tables that number ids, see ``ids.py``. Importing this module imports numba.

A table is an array of int32 slots, a power of two of them: the number of an id, or -1. The ids themselves lie in the
order of their numbers in another array, so that a slot takes 4 bytes. An id that finds its slot taken goes to the next.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import numba
import numpy as np

from fullgnn.graph import _csr_cpu
from fullgnn.graph._csr_cpu import mixed
from fullgnn.kernels.support.vectors import compiled_with

compiled = compiled_with(_csr_cpu)
"""``compiled`` for loops that call functions of these modules."""

_BLOCK = 1024  # ids that are looked up together


@compiled()
def find_integers(values, ids, slots, codes):
    """Write to ``codes`` the number of each of the ``values``, -1 where it has none.

    A block has all of its slots read before any id is compared: reads that do not wait for each other overlap.
    """
    mask = np.uint64(len(slots) - 1)
    for first in range(0, len(values), _BLOCK):
        stop = min(first + _BLOCK, len(values))
        for index in range(first, stop):
            codes[index] = slots[mixed(np.uint64(values[index])) & mask]
        for index in range(first, stop):
            code = codes[index]
            if code >= 0 and ids[code] != values[index]:
                slot = (mixed(np.uint64(values[index])) + np.uint64(1)) & mask
                code = slots[slot]
                while code >= 0 and ids[code] != values[index]:
                    slot = (slot + np.uint64(1)) & mask
                    code = slots[slot]
                codes[index] = code


@compiled()
def add_integers(values, ids, slots, codes, first, count, most):
    """Give the next numbers to the ``values`` from ``first`` on whose code is -1.

    Returns:
        where it has stopped, since there are ``most`` ids, or the number of values; and the number of ids.
    """
    mask = np.uint64(len(slots) - 1)
    for index in range(first, len(values)):
        if codes[index] < 0:
            slot = mixed(np.uint64(values[index])) & mask
            while slots[slot] >= 0 and ids[slots[slot]] != values[index]:
                slot = (slot + np.uint64(1)) & mask
            if slots[slot] < 0:
                if count == most:
                    return index, count
                slots[slot] = count
                ids[count] = values[index]
                count += 1
            codes[index] = slots[slot]
    return len(values), count


@compiled()
def fill_integers(ids, slots):
    """Put the numbers of different ``ids`` into ``slots``, which are -1."""
    mask = np.uint64(len(slots) - 1)
    for code in range(len(ids)):
        slot = mixed(np.uint64(ids[code])) & mask
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = code


@numba.njit(nogil=True)
def _hash_text(utf8, begin, end):
    """A 64-bit hash of some bytes: FNV-1a, and the mixing of integers."""
    word = np.uint64(0xCBF29CE484222325)
    for place in range(begin, end):
        word = (word ^ np.uint64(utf8[place])) * np.uint64(0x100000001B3)
    return mixed(word)


@numba.njit(nogil=True)
def _is_text(utf8, begin, end, ends, known, code):
    """Whether the text ``code`` of the ``known`` ones is the bytes of ``utf8`` from ``begin`` to ``end``."""
    start = ends[code]
    if ends[code + 1] - start != end - begin:
        return False
    for place in range(end - begin):
        if known[start + place] != utf8[begin + place]:
            return False
    return True


@compiled()
def find_texts(starts, utf8, ends, known, slots, codes):
    """As ``find_integers``, of the texts ``utf8[starts[i] : starts[i + 1]]``."""
    mask = np.uint64(len(slots) - 1)
    for first in range(0, len(codes), _BLOCK):
        stop = min(first + _BLOCK, len(codes))
        for index in range(first, stop):
            codes[index] = slots[_hash_text(utf8, starts[index], starts[index + 1]) & mask]
        for index in range(first, stop):
            code = codes[index]
            if code >= 0 and not _is_text(utf8, starts[index], starts[index + 1], ends, known, code):
                slot = (_hash_text(utf8, starts[index], starts[index + 1]) + np.uint64(1)) & mask
                code = slots[slot]
                while code >= 0 and not _is_text(utf8, starts[index], starts[index + 1], ends, known, code):
                    slot = (slot + np.uint64(1)) & mask
                    code = slots[slot]
                codes[index] = code


@compiled()
def add_texts(starts, utf8, ends, known, slots, codes, first, count, most):
    """As ``add_integers``; it stops as well where ``known`` has no room for the bytes of a text."""
    mask = np.uint64(len(slots) - 1)
    for index in range(first, len(codes)):
        if codes[index] < 0:
            begin, end = starts[index], starts[index + 1]
            slot = _hash_text(utf8, begin, end) & mask
            while slots[slot] >= 0 and not _is_text(utf8, begin, end, ends, known, slots[slot]):
                slot = (slot + np.uint64(1)) & mask
            if slots[slot] < 0:
                start = ends[count]
                if count == most or start + (end - begin) > len(known):
                    return index, count
                for place in range(end - begin):
                    known[start + place] = utf8[begin + place]
                ends[count + 1] = start + (end - begin)
                slots[slot] = count
                count += 1
            codes[index] = slots[slot]
    return len(codes), count


@compiled()
def fill_texts(ends, known, slots):
    """As ``fill_integers``, of the texts ``known[ends[i] : ends[i + 1]]``."""
    mask = np.uint64(len(slots) - 1)
    for code in range(len(ends) - 1):
        slot = _hash_text(known, ends[code], ends[code + 1]) & mask
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = code
