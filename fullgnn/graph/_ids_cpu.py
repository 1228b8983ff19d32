"""Compiled hash tables that number ids, see ``ids.py``. Importing this module imports numba.

A table is an array of int32 slots, a power of two of them: the number of an id, or -1. The ids themselves lie in the
order of their numbers in other arrays, so that a slot takes 4 bytes. An id that finds its slot taken goes to the next.

Ids are ``keys`` and ``utf8``: of texts, text i is the bytes ``utf8[keys[i] : keys[i + 1]]``; of integers, these are the
keys, and ``utf8`` is None, for which numba compiles loops of their own.
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


@numba.njit(nogil=True)
def _hash(keys, utf8, index):
    """A 64-bit hash of an id; of a text, FNV-1a and the mixing of integers."""
    if utf8 is None:
        return mixed(np.uint64(keys[index]))
    word = np.uint64(0xCBF29CE484222325)
    for place in range(keys[index], keys[index + 1]):
        word = (word ^ np.uint64(utf8[place])) * np.uint64(0x100000001B3)
    return mixed(word)


@numba.njit(nogil=True)
def _is_same(keys, utf8, index, known, known_utf8, code):
    """Whether an id is the known one with the number ``code``."""
    if utf8 is None:
        return known[code] == keys[index]
    begin, start = keys[index], known[code]
    if known[code + 1] - start != keys[index + 1] - begin:
        return False
    for place in range(keys[index + 1] - begin):
        if known_utf8[start + place] != utf8[begin + place]:
            return False
    return True


@numba.njit(nogil=True)
def _keep(keys, utf8, index, known, known_utf8, code):
    """Make an id the known one with the number ``code``; False: there is no room for the bytes of a text."""
    if utf8 is None:
        known[code] = keys[index]
        return True
    begin, start = keys[index], known[code]
    size = keys[index + 1] - begin
    if start + size > len(known_utf8):
        return False
    for place in range(size):
        known_utf8[start + place] = utf8[begin + place]
    known[code + 1] = start + size
    return True


@compiled()
def find(keys, utf8, known, known_utf8, slots, codes, begin, end):
    """Write to ``codes``, from ``begin`` to ``end``, the number of each id, -1 where it has none.

    A block has all of its slots read before any id is compared: reads that do not wait for each other overlap.
    """
    mask = np.uint64(len(slots) - 1)
    for first in range(begin, end, _BLOCK):
        stop = min(first + _BLOCK, end)
        for index in range(first, stop):
            codes[index] = slots[_hash(keys, utf8, index) & mask]
        for index in range(first, stop):
            code = codes[index]
            if code >= 0 and not _is_same(keys, utf8, index, known, known_utf8, code):
                slot = (_hash(keys, utf8, index) + np.uint64(1)) & mask
                code = slots[slot]
                while code >= 0 and not _is_same(keys, utf8, index, known, known_utf8, code):
                    slot = (slot + np.uint64(1)) & mask
                    code = slots[slot]
                codes[index] = code


@compiled()
def add(keys, utf8, known, known_utf8, slots, codes, first, count, most):
    """Give the next numbers to the ids from ``first`` on whose code is -1.

    Returns:
        where it has stopped, since ``most`` ids are known or a text has no room, or the number of ids; and the number
        of known ids.
    """
    mask = np.uint64(len(slots) - 1)
    for index in range(first, len(codes)):
        if codes[index] < 0:
            slot = _hash(keys, utf8, index) & mask
            while slots[slot] >= 0 and not _is_same(keys, utf8, index, known, known_utf8, slots[slot]):
                slot = (slot + np.uint64(1)) & mask
            if slots[slot] < 0:
                if count == most or not _keep(keys, utf8, index, known, known_utf8, count):
                    return index, count
                slots[slot] = count
                count += 1
            codes[index] = slots[slot]
    return len(codes), count


@compiled()
def fill(known, known_utf8, count, slots):
    """Put the numbers of the ``count`` known ids into ``slots``, which are -1."""
    mask = np.uint64(len(slots) - 1)
    for code in range(count):
        slot = _hash(known, known_utf8, code) & mask
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = code
