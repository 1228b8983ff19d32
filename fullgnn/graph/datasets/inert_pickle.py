"""Pickle files read as data: nothing that a file names is imported, called or built.

Python's own unpickler calls what a file asks it to call, and even with a short list of allowed names the state that the
file then sets can make NumPy follow pointers of the file's choosing, a tuple nested a million times ends the process
when it is hashed, and one number of five bytes lets a table of 64 GB be filled. Here it is the unpickler in Python,
whose memory follows what is there, with the opcodes that arrays, dictionaries and lists need alone, and it leaves a
``Made`` where an object or a dictionary would be built: the reader of a format looks at it, and takes the numbers that
it wants. Text and bytes of Python 2 are both ``bytes``; those of Python 3 are ``str`` and ``bytes``.
"""

import io
import pickle
import struct
from collections.abc import Callable, Collection
from typing import Any

from fullgnn.errors import DataError, quoted

_OPCODES = """
    PROTO FRAME STOP MARK POP NONE NEWTRUE NEWFALSE INT LONG BININT BININT1 BININT2 LONG1 FLOAT BINFLOAT STRING
    BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8 UNICODE BINUNICODE SHORT_BINUNICODE EMPTY_TUPLE TUPLE
    TUPLE1 TUPLE2 TUPLE3 EMPTY_LIST LIST APPEND APPENDS EMPTY_DICT DICT SETITEM SETITEMS GET BINGET LONG_BINGET PUT
    BINPUT LONG_BINPUT MEMOIZE GLOBAL STACK_GLOBAL REDUCE NEWOBJ BUILD
""".split()
_ENDS_EARLY = "the file ends too early"


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
        self.items: list[Any] = []  # of a dictionary: a key, its value, a key, ...


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
    stream = _Lines(content)
    try:
        return _InertUnpickler(stream, names, renamed).load()
    except KeyError as error:
        code = bytes(error.args)
        raise ValueError(f"opcode {code!r} at byte {stream.tell() - 1}, which numbers do not need") from error
    except (EOFError, IndexError, struct.error) as error:
        raise ValueError(_ENDS_EARLY if stream.tell() == len(content) else "a value is missing") from error
    except pickle.UnpicklingError as error:
        raise ValueError(str(error)) from error


class _Lines(io.BytesIO):
    """The bytes of a pickle, each line of which ends."""

    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(size)
        if not line.endswith(b"\n"):
            raise ValueError(_ENDS_EARLY)
        return line


class _Memo(dict[int, Any]):
    def __missing__(self, index: int) -> Any:
        raise ValueError(f"nothing is remembered as {index}")


class _InertUnpickler(pickle._Unpickler):
    """Python's unpickler, whose methods that would import, call or fill something are replaced."""

    stack: list[Any]
    metastack: list[list[Any]]
    append: Callable[[Any], None]
    read: Callable[[int], bytes]

    def __init__(self, stream: _Lines, names: Collection[tuple[str, str]], renamed: dict[str, str]) -> None:
        super().__init__(stream, encoding="bytes")
        self.names, self.renamed, self.memo = names, renamed, _Memo()

    def find_class(self, module: str, name: str) -> Global:
        older = self.renamed.get(module, module)
        if (older, name) not in self.names:
            raise DataError(
                f"refused to load {quoted(f'{module}.{name}')}, which no such file needs: do not trust this file"
            )
        return Global(older, name)

    def pop_mark(self) -> list[Any]:
        if not self.metastack:
            raise ValueError("a mark is missing")
        return super().pop_mark()  # type: ignore[misc]

    def load_frame(self) -> None:
        self.read(8)  # its length: it is read opcode by opcode, as everything

    def load_reduce(self) -> None:
        args, maker = self.stack.pop(), self.stack.pop()
        if not (isinstance(maker, Global) and isinstance(args, tuple)):
            raise ValueError("something else than a name is called")
        self.append(Made(maker, args))

    load_newobj = load_reduce

    def load_build(self) -> None:
        state = self.stack.pop()
        self._last(Made, "something else than an object gets a state").state = state

    def load_append(self) -> None:
        self._extend([self.stack.pop()])

    def load_appends(self) -> None:
        self._extend(self.pop_mark())

    def load_empty_dictionary(self) -> None:
        self.append(Made(Global("__builtin__", "dict"), ()))

    def load_dict(self) -> None:
        items = self.pop_mark()
        self.load_empty_dictionary()
        self._set(items)

    def load_setitem(self) -> None:
        self._set([self.stack.pop(), self.stack.pop()][::-1])

    def load_setitems(self) -> None:
        self._set(self.pop_mark())

    def _extend(self, values: list[Any]) -> None:
        self._last(list, "something else than a list is appended to").extend(values)

    def _set(self, items: list[Any]) -> None:
        self._last(Made, "something else than a dictionary gets items").items.extend(items)

    def _last(self, kind: type, problem: str) -> Any:
        """The value on the top of the stack, if it is of this ``kind``."""
        if not isinstance(self.stack[-1], kind):
            raise ValueError(problem)
        return self.stack[-1]


_InertUnpickler.dispatch = {
    code: getattr(_InertUnpickler, pickle._Unpickler.dispatch[code].__name__)
    for code in (getattr(pickle, name)[0] for name in _OPCODES)
}
