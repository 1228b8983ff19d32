"""Pickle files read as data: nothing that a file names is imported, called or built.

Python's own unpickler calls what a file asks it to call, and even with a short list of allowed names the state that the
file then sets can make NumPy follow pointers of the file's choosing, a tuple nested a million times ends the process
when it is hashed, and one number of five bytes lets a table of 64 GB be filled. The machine here knows the opcodes that
arrays, dictionaries and lists need, and leaves a ``Made`` where an object would be built: the reader of a format looks
at it, and takes the numbers that it wants. Text and bytes of Python 2 are both ``bytes``; those of Python 3 are ``str``
and ``bytes``.

A dictionary of lists of integers, as a graph has, is read by ``IntLists``, thousands of opcodes at once.
"""

import codecs
import re
import struct
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from fullgnn.errors import DataError, quoted


class Global:
    """A name ``module.name``, which was not looked up."""

    __slots__ = ("module", "name")

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name


class Made:
    """What stands where a ``Global`` was to be called with ``args``, and was to take ``state``."""

    __slots__ = ("args", "items", "maker", "state")

    def __init__(self, maker: Global, args: tuple[Any, ...]) -> None:
        self.maker, self.args = maker, args
        self.state: Any = None
        self.items: list[Any] = []  # of a dictionary: a key, its value, a key, ..., or IntLists in place of both


@dataclass(frozen=True, eq=False)
class IntLists:
    """Some items of a dictionary from integers to lists of integers, in the order of the file."""

    keys: np.ndarray  # (num_items,) int64
    counts: np.ndarray  # (num_items,) int64
    values: np.ndarray  # (counts.sum(),) int64


_INT = rb"(?:K.|M..|J.{4})"
_PUT = rb"(?:q.|r.{4}|\x94)?"  # BINPUT, LONG_BINPUT, MEMOIZE: such a list is not remembered
_ITEMS = re.compile(rb"(?:%b\]%b(?:\(%b*+e|%ba)?+)++" % (_INT, _PUT, _INT, _INT), re.DOTALL)
_TOKEN = re.compile(rb"K.|M..|J.{4}|\]|q.|r.{4}|[(ea\x94]", re.DOTALL)
_BYTES_OF_INT = np.zeros(256, np.int64)  # by opcode; 0: it pushes no integer
_BYTES_OF_INT[list(b"KMJ")] = 1, 2, 4
_MARK = object()


def read_pickle(content: bytes, names: Collection[tuple[str, str]], renamed: dict[str, str]) -> Any:
    """The value of a pickle: numbers, text, bytes, None, tuples, lists, ``Made``, and ``Global`` in place of a class.

    A dictionary is a ``Made`` by the name ``dict`` of the module ``__builtin__``.

    Args:
        names: the names, module and name, that the file may have.
        renamed: the older name of a module, by a newer one.

    Raises:
        DataError: the file has another name.
        ValueError: the file is damaged, or has an opcode that data do not need.
    """
    machine = _Machine(content, names, renamed, at_once=True)
    try:
        return machine.run()
    except ValueError:
        if not machine.has_skipped:
            raise
    # Perhaps the file takes a list of IntLists again, or appends to one once more.
    return _Machine(content, names, renamed, at_once=False).run()


class _Machine:
    """Reads a pickle, opcode by opcode."""

    def __init__(
        self, content: bytes, names: Collection[tuple[str, str]], renamed: dict[str, str], at_once: bool
    ) -> None:
        self.content, self.names, self.renamed, self.at_once = content, names, renamed, at_once
        self.place = 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.has_skipped = False  # whether there are lists that are not remembered

    def run(self) -> Any:
        while True:
            if self.at_once and self.stack and self.stack[-1] is _MARK:
                self.int_lists()
            code = self.take(1)
            if code == b".":
                return self.pop()
            do = _OPCODES.get(code)
            if do is None:
                raise ValueError(f"opcode {code!r} at byte {self.place - 1}, which numbers do not need")
            do(self)

    def int_lists(self) -> None:
        """Read the items of a dictionary that begin here, if they are lists of integers."""
        match = _ITEMS.match(self.content, self.place)
        if match is None:
            return
        tokens = _TOKEN.findall(match[0])
        length = np.fromiter(map(len, tokens), np.int32, len(tokens))
        code = np.frombuffer(match[0] + bytes(4), np.uint8)
        start = np.cumsum(length) - length
        kind = code[start]
        is_int = _BYTES_OF_INT[kind] > 0
        at, num_bytes = start[is_int] + 1, _BYTES_OF_INT[kind[is_int]]
        number = code[at].astype(np.int64)
        for byte in range(1, 4):
            longer = np.flatnonzero(num_bytes > byte)
            number[longer] |= code[at[longer] + byte].astype(np.int64) << 8 * byte
        number[number >= 1 << 31] -= 1 << 32  # a BININT is signed
        # The integer before an EMPTY_LIST is the key of that list.
        is_key = np.append(kind[1:] == ord("]"), False)[is_int]
        first = np.flatnonzero(is_key)
        counts = np.diff(first, append=len(number)) - 1
        self.stack.append(IntLists(number[is_key], counts, number[~is_key]))
        self.has_skipped = True
        self.place = match.end()

    def take(self, size: int) -> bytes:
        taken = self.content[self.place : self.place + size]
        if len(taken) < size:
            raise ValueError("the file ends too early")
        self.place += size
        return taken

    def number(self, form: str) -> int:
        return int(struct.unpack(form, self.take(struct.calcsize(form)))[0])

    def line(self) -> bytes:
        end = self.content.find(b"\n", self.place)
        if end < 0:
            raise ValueError("the file ends too early")
        taken, self.place = self.content[self.place : end], end + 1
        return taken

    def pop(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise ValueError("a value is missing")
        return self.stack.pop()

    def pop_to_mark(self) -> list[Any]:
        for position in range(len(self.stack) - 1, -1, -1):
            if self.stack[position] is _MARK:
                values = self.stack[position + 1 :]
                del self.stack[position:]
                return values
        raise ValueError("a mark is missing")

    def push_tuple(self, size: int) -> None:
        values = [self.pop() for _ in range(size)]
        self.stack.append(tuple(reversed(values)))

    def get(self, index: int) -> None:
        if self.has_skipped or index not in self.memo:
            raise ValueError(f"nothing is remembered as {index}")
        self.stack.append(self.memo[index])

    def put(self, index: int) -> None:
        self.memo[index] = self.stack[-1] if self.stack else self.pop()

    def name(self, module: str, name: str) -> None:
        asked, module = module, self.renamed.get(module, module)
        if (module, name) not in self.names:
            raise DataError(
                f"refused to load {quoted(f'{asked}.{name}')}, which no such file needs: do not trust this file"
            )
        self.stack.append(Global(module, name))

    def name_from_stack(self) -> None:
        name, module = self.pop(), self.pop()
        if not (isinstance(name, str) and isinstance(module, str)):
            raise ValueError("a name is no text")
        self.name(module, name)

    def make(self) -> None:
        args, maker = self.pop(), self.pop()
        if not (isinstance(maker, Global) and isinstance(args, tuple)):
            raise ValueError("something else than a name is called")
        self.stack.append(Made(maker, args))

    def build(self) -> None:
        state, made = self.pop(), self.pop()
        if not isinstance(made, Made):
            raise ValueError("something else than an object gets a state")
        made.state = state
        self.stack.append(made)

    def append(self, values: list[Any]) -> None:
        target = self.pop()
        if not isinstance(target, list):
            raise ValueError("something else than a list is appended to")
        target.extend(values)
        self.stack.append(target)

    def set_items(self, items: list[Any]) -> None:
        target = self.pop()
        if not isinstance(target, Made):
            raise ValueError("something else than a dictionary gets items")
        target.items.extend(items)
        self.stack.append(target)

    def push_dict(self, items: list[Any]) -> None:
        self.stack.append(Made(Global("__builtin__", "dict"), ()))
        self.set_items(items)

    def push_int(self, text: bytes) -> None:
        named = {b"00": 0, b"01": 1}  # how protocol 0 writes booleans
        self.stack.append(named[text] if text in named else int(text.removesuffix(b"L")))

    def push_quoted(self, text: bytes) -> None:
        if len(text) < 2 or text[:1] != text[-1:] or text[:1] not in (b"'", b'"'):
            raise ValueError("a text has no quotes")
        self.stack.append(codecs.escape_decode(text[1:-1])[0])


def _pushes(value: Callable[[_Machine], Any]) -> Callable[[_Machine], None]:
    return lambda machine: machine.stack.append(value(machine))


_OPCODES: dict[bytes, Callable[[_Machine], Any]] = {
    b"\x80": lambda m: m.take(1),  # PROTO
    b"\x95": lambda m: m.take(8),  # FRAME
    b"(": _pushes(lambda m: _MARK),
    b"0": lambda m: m.pop(),
    b"N": _pushes(lambda m: None),
    b"\x88": _pushes(lambda m: True),
    b"\x89": _pushes(lambda m: False),
    b"I": lambda m: m.push_int(m.line()),
    b"L": lambda m: m.push_int(m.line()),
    b"K": _pushes(lambda m: m.number("B")),
    b"M": _pushes(lambda m: m.number("<H")),
    b"J": _pushes(lambda m: m.number("<i")),
    b"\x8a": _pushes(lambda m: int.from_bytes(m.take(m.number("B")), "little", signed=True)),  # LONG1
    b"F": _pushes(lambda m: float(m.line())),
    b"G": _pushes(lambda m: struct.unpack(">d", m.take(8))[0]),
    b"S": lambda m: m.push_quoted(m.line()),
    b"T": _pushes(lambda m: m.take(m.number("<I"))),
    b"U": _pushes(lambda m: m.take(m.number("B"))),
    b"B": _pushes(lambda m: m.take(m.number("<I"))),
    b"C": _pushes(lambda m: m.take(m.number("B"))),
    b"\x8e": _pushes(lambda m: m.take(m.number("<Q"))),  # BINBYTES8
    b"V": _pushes(lambda m: m.line().decode("raw_unicode_escape")),
    b"X": _pushes(lambda m: m.take(m.number("<I")).decode()),
    b"\x8c": _pushes(lambda m: m.take(m.number("B")).decode()),  # SHORT_BINUNICODE
    b")": _pushes(lambda m: ()),
    b"\x85": lambda m: m.push_tuple(1),
    b"\x86": lambda m: m.push_tuple(2),
    b"\x87": lambda m: m.push_tuple(3),
    b"t": _pushes(lambda m: tuple(m.pop_to_mark())),
    b"]": _pushes(lambda m: []),
    b"l": _pushes(lambda m: m.pop_to_mark()),
    b"a": lambda m: m.append([m.pop()]),
    b"e": lambda m: m.append(m.pop_to_mark()),
    b"}": lambda m: m.push_dict([]),
    b"d": lambda m: m.push_dict(m.pop_to_mark()),
    b"s": lambda m: m.set_items([m.pop(), m.pop()][::-1]),
    b"u": lambda m: m.set_items(m.pop_to_mark()),
    b"g": lambda m: m.get(int(m.line())),
    b"h": lambda m: m.get(m.number("B")),
    b"j": lambda m: m.get(m.number("<I")),
    b"p": lambda m: m.put(int(m.line())),
    b"q": lambda m: m.put(m.number("B")),
    b"r": lambda m: m.put(m.number("<I")),
    b"\x94": lambda m: m.put(len(m.memo)),  # MEMOIZE
    b"c": lambda m: m.name(m.line().decode(), m.line().decode()),
    b"\x93": lambda m: m.name_from_stack(),
    b"R": lambda m: m.make(),
    b"\x81": lambda m: m.make(),  # NEWOBJ
    b"b": lambda m: m.build(),
}
