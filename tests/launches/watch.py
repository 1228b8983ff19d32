"""Watch the launches of Triton's interpreter. Importing this module imports Triton."""

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import torch
from numpy.typing import NDArray
from triton.runtime import interpreter

from tests.launches.overlap import ATOMIC, READ, WRITE, Access, overlaps

BEHIND = "outside the rows of"
PADDING = "the padding of"
NO_ARGUMENT = "an address that derives from no argument"

ARGUMENT = "argument"  # the key of a handle's attribute
KEEP_THE_ARGUMENT = ("addptr", "splat", "unsplat", "broadcast", "expand_dims", "reshape", "bitcast", "trans")
"""Operations whose result has the addresses of their first operand."""

WRITE_PADDING = {"_cross_entropy": "gradient", "_mask": "out", "_outer": "masked"}
"""The argument of a kernel whose padding the kernel writes, as its docstring says, so that whole lines are written."""


@dataclass(frozen=True, eq=False)
class Argument:
    """A tensor that a kernel was given."""

    name: str
    tensor: torch.Tensor

    @functools.cached_property
    def _dims(self) -> list[tuple[int, int, int]]:
        """Number, size and stride of each dimension that tells elements apart, the largest stride first."""
        sizes, strides = self.tensor.shape, self.tensor.stride()
        extents = [(size - 1) * stride for size, stride in zip(sizes, strides)]
        dims = [
            (number, sizes[number], strides[number])
            for number in range(len(sizes))
            # A dimension of one element counts if its stride, the padded length of a row, is one.
            if strides[number] > 0 and (sizes[number] > 1 or strides[number] > sum(extents))
        ]
        return sorted(dims, key=lambda dim: -dim[2])

    @functools.cached_property
    def _rows(self) -> tuple[int, int]:
        """The first and the last address, with the padding behind the last row as far as there is memory for it."""
        start, storage = self.tensor.data_ptr(), self.tensor.untyped_storage()
        if not self.tensor.numel():
            return start, start
        elements = self._dims[0][1] * self._dims[0][2] if self._dims else 1
        return start, min(start + elements * self.tensor.itemsize, storage.data_ptr() + storage.nbytes())

    def inside(self, addresses: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Which addresses lie in the rows or in their padding."""
        low, high = self._rows
        return (addresses >= low) & (addresses + np.uint64(self.tensor.itemsize) <= high)

    def elements(self, addresses: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Which addresses ``inside`` are those of elements."""
        wrong = np.zeros(addresses.shape, bool)
        for (_, size, _), index in zip(self._dims, self._indices(addresses)):
            wrong |= index >= size
        return ~wrong

    def element(self, address: int) -> str:
        """How the element at ``address`` is written in PyTorch."""
        if not self.inside(np.array([address], np.uint64))[0]:
            distance = (address - self.tensor.data_ptr()) // self.tensor.itemsize
            return f"{self.name} at {distance} elements from its first one"
        indices = [0] * self.tensor.dim()
        for (number, _, _), index in zip(self._dims, self._indices(np.array([address], np.uint64))):
            indices[number] = int(index[0])
        return f"{self.name}{indices}"

    def _indices(self, addresses: NDArray[np.uint64]) -> Iterator[NDArray[np.int64]]:
        rest = (addresses - np.uint64(self.tensor.data_ptr())).astype(np.int64) // self.tensor.itemsize
        for _, _, stride in self._dims:
            index, rest = np.divmod(rest, stride)
            yield index


@dataclass(eq=False)
class Launch:
    """What one launch has touched so far."""

    kernel: str
    report: Callable[[str, str], None]  # a line, and what kind of fault it is
    arguments: dict[int, Argument] = field(default_factory=dict)  # by the id of the tensor
    accesses: list[Access] = field(default_factory=list)
    programs: dict[tuple[int, int, int], int] = field(default_factory=dict)
    barriers: int = 0

    def access(self, kind: int, program: tuple[int, int, int], ptrs: Any, mask: Any) -> Any:
        """Take notes of an access, and return its mask without the addresses that it may not touch."""
        addresses = np.asarray(ptrs.data, np.uint64)
        wanted = np.broadcast_to(np.asarray(mask.data, bool), addresses.shape)
        places = np.flatnonzero(wanted)
        if not places.size:
            return mask
        touched = addresses.ravel()[places]
        argument: Argument | None = ptrs.attr.get(ARGUMENT)
        if argument is None:
            self._fault(f"program {program} {_verb(kind)} {NO_ARGUMENT}", NO_ARGUMENT)
            allowed = np.zeros(touched.shape, bool)
        else:
            allowed = argument.inside(touched)
            if not allowed.all():
                self._misplaced(kind, program, BEHIND, argument, touched[~allowed])
            elif kind != READ and argument.name != WRITE_PADDING.get(self.kernel):
                elements = argument.elements(touched)
                if not elements.all():
                    self._misplaced(kind, program, PADDING, argument, touched[~elements])
        if not allowed.all():
            rest = np.zeros(addresses.size, bool)
            rest[places[allowed]] = True
            mask = interpreter.TensorHandle(rest.reshape(addresses.shape), mask.dtype)
            touched, places = touched[allowed], places[allowed]
        number = self.programs.setdefault(program, len(self.programs))
        self.accesses.append(Access(kind, number, self.barriers, touched, places, addresses.size))
        return mask

    def finish(self) -> None:
        """Look for accesses that get in each other's way."""
        programs = list(self.programs)
        for kind, address, own, other in overlaps(self.accesses):
            at = np.array([address], np.uint64)
            argument = next(some for some in self.arguments.values() if some.inside(at)[0])
            who = f"program {programs[own]}" if own == other else f"programs {programs[own]} and {programs[other]}"
            self._fault(f"{kind}: {argument.element(address)}, {who}", kind + argument.name)

    def _misplaced(
        self, kind: int, program: tuple[int, int, int], where: str, argument: Argument, wrong: NDArray[np.uint64]
    ) -> None:
        example = argument.element(int(wrong[0]))
        self._fault(f"program {program} {_verb(kind)} {where} {argument.name}: {example}", where + argument.name)

    def _fault(self, text: str, kind: str) -> None:
        self.report(f"{self.kernel}: {text}", f"{self.kernel}: {kind}")


def _verb(kind: int) -> str:
    return {READ: "reads", WRITE: "writes", ATOMIC: "changes"}[kind]


@contextmanager
def watched() -> Iterator[list[str]]:
    """Yield a list to which a line is appended for the first fault of each kind, kernel and argument inside the block.

    Accesses outside their argument are reported and not made.
    """
    faults: list[str] = []
    said = set[str]()
    launch: Launch | None = None
    executor, builder = interpreter.GridExecutor, interpreter.InterpreterBuilder

    def report(line: str, kind: str) -> None:
        if kind not in said:
            said.add(kind)
            faults.append(line)

    def call(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        nonlocal launch
        launch = Launch(self.fn.__name__, report)
        try:
            original(self, *args, **kwargs)
            launch.finish()
        finally:
            launch = None

    def name_arguments(original: Any, self: Any, args: Any, kwargs: Any) -> Any:
        on_host = original(self, args, kwargs)
        for name, value in (*zip(self.arg_names, on_host[0]), *on_host[1].items()):
            if isinstance(value, torch.Tensor) and launch is not None:
                launch.arguments[id(value)] = Argument(name, value)
        return on_host

    def convert(original: Any, argument: Any) -> Any:
        converted = original(argument)
        if launch is not None and id(argument) in launch.arguments:
            converted.handle.set_attr(ARGUMENT, launch.arguments[id(argument)])
        return converted

    def keep_the_argument(original: Any, self: Any, *operands: Any) -> Any:
        result = original(self, *operands)
        for operand in operands:
            if isinstance(operand, interpreter.TensorHandle) and ARGUMENT in operand.attr:
                result.set_attr(ARGUMENT, operand.attr[ARGUMENT])
        return result

    def set_program(original: Any, self: Any, *program: int) -> None:
        original(self, *program)
        if launch is not None:
            launch.barriers = 0

    def barrier(original: Any, self: Any) -> None:
        if launch is not None:
            launch.barriers += 1

    def load(original: Any, self: Any, ptrs: Any, mask: Any, *rest: Any) -> Any:
        return original(self, ptrs, launch.access(READ, self.grid_idx, ptrs, mask) if launch else mask, *rest)

    def store(original: Any, self: Any, ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
        return original(self, ptrs, value, launch.access(WRITE, self.grid_idx, ptrs, mask) if launch else mask, *rest)

    def atomic(original: Any, self: Any, operation: Any, ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
        mask = launch.access(ATOMIC, self.grid_idx, ptrs, mask) if launch else mask
        return original(self, operation, ptrs, value, mask, *rest)

    with ExitStack() as patches:

        def patch(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
            original = getattr(owner, name)
            wrapped = functools.wraps(original)(lambda *args, **kwargs: wrapper(original, *args, **kwargs))
            patches.enter_context(mock.patch.object(owner, name, wrapped))

        patch(executor, "__call__", call)
        patch(executor, "_init_args_hst", name_arguments)
        patch(interpreter, "_implicit_cvt", convert)
        patch(builder, "set_grid_idx", set_program)
        patch(builder, "create_barrier", barrier)
        patch(builder, "create_masked_load", load)
        patch(builder, "create_masked_store", store)
        patch(builder, "create_atomic_rmw", atomic)
        for operation in KEEP_THE_ARGUMENT:
            if hasattr(builder, f"create_{operation}"):
                patch(builder, f"create_{operation}", keep_the_argument)
        yield faults
