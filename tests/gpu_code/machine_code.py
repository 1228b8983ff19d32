"""Memory accesses, barriers and resources of a compiled kernel, read from PTX and cubin without a GPU.

The PTX shows every access to global memory, the kernel argument from which the address derives, whether the access
lies in a loop, and the barriers of each loop. The cubin shows registers and stack. Both together give the number of
CTAs that one SM of compute capability 9.0 holds.

An address derives from an argument if a chain of instructions leads from the instruction that reads the argument to the
register in the brackets. Shared memory counts as one register in such a chain; a value that was loaded from global
memory derives from nothing. A loop is the stretch from a label to the last branch back to it: LLVM, which writes the
PTX, lays the blocks of a loop side by side.

Triton's package holds ``cuobjdump``.
"""

import re
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

VECTOR_BYTES = 16  # the widest access of one thread

# One SM of compute capability 9.0: NVIDIA, "CUDA C++ Programming Guide", table of technical specifications by compute
# capability, and the granularities of the occupancy calculator of Nsight Compute.
SM_REGISTERS = 65_536
SM_SHARED_BYTES = 228 * 1024
SM_WARPS = 64
SM_CTAS = 32
SM_PARTITIONS = 4  # each with a quarter of the registers, which a warp cannot leave
REGISTER_UNIT = 256  # registers that a warp is given at a time
SHARED_UNIT = 128  # bytes that a CTA is given at a time
SHARED_RESERVED = 1024  # bytes of every CTA that the system takes

_STATEMENT = re.compile(r"(?:@!?%\w+\s+)?([a-z][\w.:]*)\s*(.*)", re.DOTALL)
_REGISTER = re.compile(r"%\w+")
_GLOBAL = re.compile(r"(ld|st|red|atom)\.global[\w.:]*?(?:\.v(\d))?\.[bfsu](\d+)$")
_COPY = re.compile(r"cp\.async\.c[ag]\.shared\.global")
_BARRIER = re.compile(r"(?:bar|barrier)(?:\.cta)?\.sync|bar\.red")
_SHARED = "shared memory"
_NO_VALUE_FLOW = ("ld", "st", "red", "atom", "cp", "bra", "ldmatrix", "wgmma", "mma")

Statement = tuple[str, str]
"""Operation and operands."""


@dataclass(frozen=True)
class Access:
    """One instruction that reads or writes global memory."""

    arguments: frozenset[str]  # from which the address derives
    num_bytes: int  # accessed by one thread
    is_load: bool
    place: int  # index of the statement


class Program:
    """One kernel in PTX.

    Args:
        ptx: a module with one kernel.
        pointers: names of the parameters that are addresses, by their numbers.
    """

    def __init__(self, ptx: str, pointers: Mapping[int, str]):
        self._statements, self.loops = _read(ptx)
        self.accesses = list(self._find_accesses(_origins(self._statements, pointers)))

    @staticmethod
    def of(compiled: Any) -> "Program":
        """The program of a ``triton.compiler.CompiledKernel``."""
        signature = {name: str(kind) for name, kind in compiled.src.signature.items() if kind != "constexpr"}
        pointers = {number: name for number, name in enumerate(signature) if signature[name].startswith("*")}
        return Program(compiled.asm["ptx"], pointers)

    def barriers(self, loop: range) -> int:
        """Barriers of all threads of a CTA in a loop."""
        return sum(_BARRIER.match(self._statements[place][0]) is not None for place in loop)

    def loads(self, arguments: Iterable[str]) -> list[Access]:
        """Loads from what one of the arguments points to."""
        return [access for access in self.accesses if access.is_load and not access.arguments.isdisjoint(arguments)]

    def innermost(self, arguments: Iterable[str]) -> list[range]:
        """The loops that load from what one of the arguments points to, and hold no smaller loop that does."""
        loads = self.loads(arguments)
        loading = [loop for loop in self.loops if any(load.place in loop for load in loads)]
        return [loop for loop in loading if not any(set(other) < set(loop) for other in loading)]

    def _find_accesses(self, origins: Mapping[str, set[str]]) -> Iterator[Access]:
        for place, (operation, operands) in enumerate(self._statements):
            addresses = re.findall(r"\[([^\]]*)\]", operands)
            if match := _GLOBAL.match(operation):
                num_bytes = int(match[2] or 1) * int(match[3]) // 8
                address, is_load = addresses[0], match[1] in ("ld", "atom")
            elif _COPY.match(operation):
                num_bytes = int(operands.rsplit("]", 1)[1].split(",")[1], 0)
                address, is_load = addresses[1], True
            else:
                continue
            arguments = frozenset().union(*(origins[register] for register in _REGISTER.findall(address)))
            yield Access(arguments, num_bytes, is_load, place)


def _read(ptx: str) -> tuple[list[Statement], list[range]]:
    """The statements of a kernel, and its loops as ranges of statements."""
    body = re.sub(r"//[^\n]*", "", ptx)
    statements: list[Statement] = []
    labels: dict[str, int] = {}
    loops: dict[int, range] = {}
    for line in body[body.index("{", body.index(".entry")) + 1 :].splitlines():
        if label := re.match(r"\s*(\$?\w+):", line):
            labels[label[1]] = len(statements)
            line = line[label.end() :]
        for text in line.split(";"):
            if statement := _STATEMENT.match(text.strip().lstrip("{} \t")):
                operation, operands = statement[1], statement[2]
                statements.append((operation, operands))
                if operation.startswith("bra") and (head := labels.get(operands.strip())) is not None:
                    loops[head] = range(head, len(statements))
    return statements, list(loops.values())


def _origins(statements: Iterable[Statement], pointers: Mapping[int, str]) -> Mapping[str, set[str]]:
    """Names of the pointers that the value of each register derives from."""
    import networkx

    flow = networkx.DiGraph()
    flow.add_nodes_from(pointers.values())
    for operation, operands in statements:
        before, _, after = operands.partition("[")
        sources: list[str]
        if operation.startswith("ld.param"):
            number = int(re.findall(r"_param_(\d+)", after)[0])
            sources, targets = [pointers[number]] if number in pointers else [], _REGISTER.findall(before)
        elif operation.startswith("st.shared"):
            sources, targets = _REGISTER.findall(after.partition("]")[2]), [_SHARED]
        elif operation.startswith("ld.shared"):
            sources, targets = [_SHARED], _REGISTER.findall(before)
        elif operation.split(".")[0] not in _NO_VALUE_FLOW:
            first = operands[: operands.find("}") + 1] if operands.startswith("{") else operands.split(",")[0]
            sources, targets = _REGISTER.findall(operands[len(first) :]), _REGISTER.findall(first)
        else:
            continue
        flow.add_edges_from(product(sources, targets))
    origins: dict[str, set[str]] = defaultdict(set)
    for name in pointers.values():
        for register in networkx.descendants(flow, name):
            origins[register].add(name)
    return origins


def resources(cubin: bytes) -> dict[str, int]:
    """``registers`` of a thread, and its ``stack_bytes``, to which registers that do not fit are spilled."""
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [knobs.nvidia.cuobjdump.path, "-res-usage", file.name]
        said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    keys = {"registers": "REG", "stack_bytes": "STACK"}
    return {name: int(re.findall(rf"{key}:(\d+)", said)[-1]) for name, key in keys.items()}


def resident_ctas(registers: int, shared_bytes: int, num_warps: int) -> int:
    """CTAs that one SM of compute capability 9.0 holds at a time.

    Args:
        registers: registers of a thread.
        shared_bytes: shared memory of a CTA.
        num_warps: warps of a CTA.
    """
    per_warp = -(-registers * 32 // REGISTER_UNIT) * REGISTER_UNIT
    warps = SM_REGISTERS // SM_PARTITIONS // per_warp * SM_PARTITIONS
    shared = -(-(shared_bytes + SHARED_RESERVED) // SHARED_UNIT) * SHARED_UNIT
    return min(SM_CTAS, min(SM_WARPS, warps) // num_warps, SM_SHARED_BYTES // shared)
