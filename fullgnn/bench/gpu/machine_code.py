"""What a compiled kernel does to a GPU, read from its PTX and its cubin, without a GPU.

From the PTX: every access to global memory, the argument that its address comes from, and whether it lies in a loop;
barriers in the loops; instructions of the tensor cores. From the cubin: registers and stack. From both: how many
CTAs one SM of compute capability 9.0 holds.

PTX is followed statement by statement. An address derives from an argument if a chain of instructions leads from the
one that reads the argument to the register in the brackets. Addresses may pass through shared memory, which counts as
one cell; what a load from global memory returns derives from nothing. Loops are natural loops: a branch back to a
block, and all blocks from which the branch is reached without passing that block.

Needs Triton, whose package holds ``cuobjdump``.
"""

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

MMA = re.compile(r"^\s*(?:@\S+\s+)?(mma\.sync|wgmma\.mma_async|tcgen05\.mma)", re.MULTILINE)
VECTOR_BYTES = 16  # of the widest access of one thread

# Of one SM of compute capability 9.0: NVIDIA, "CUDA C++ Programming Guide", table of technical specifications by
# compute capability, and the granularities of the occupancy calculator of Nsight Compute.
SM_REGISTERS = 65_536
SM_SHARED_BYTES = 228 * 1024
SM_WARPS = 64
SM_CTAS = 32
SM_PARTITIONS = 4  # each with a quarter of the registers, which a warp cannot leave
REGISTER_UNIT = 256  # registers that a warp is given at a time
SHARED_UNIT = 128  # bytes that a CTA is given at a time
SHARED_RESERVED = 1024  # bytes of every CTA for the system

_STATEMENT = re.compile(r"(?:@!?(%\w+)\s+)?([a-z][\w.:]*)\s*(.*)", re.DOTALL)
_REGISTER = re.compile(r"%\w+")
_GLOBAL = re.compile(r"(ld|st|red|atom)\.global[\w.:]*?(?:\.v(\d))?\.[bfsu](\d+)$")
_COPY = re.compile(r"cp\.async\.c[ag]\.shared\.global")
_SHARED = "shared memory"
_BARRIER = re.compile(r"(?:bar|barrier)(?:\.cta)?\.sync|bar\.red")


@dataclass(frozen=True)
class Access:
    """One instruction that reads or writes global memory."""

    parameters: frozenset[int]  # that its address derives from
    num_bytes: int  # of one thread
    is_load: bool
    block: int


@dataclass
class Block:
    """Statements that run one after the other."""

    labels: list[str] = field(default_factory=list)
    statements: list[tuple[str, str, str]] = field(default_factory=list)  # predicate, operation, operands
    successors: set[int] = field(default_factory=set)


class Program:
    """One kernel in PTX.

    Args:
        ptx: of a module with one kernel.
        pointers: the numbers of the parameters that are addresses.
    """

    def __init__(self, ptx: str, pointers: Iterable[int]):
        self._pointers = frozenset(pointers)
        self.blocks = _blocks(ptx)
        self.loops = _loops(self.blocks)
        self.accesses = list(self._find_accesses())

    def barriers(self, loop: frozenset[int]) -> int:
        """Barriers of all threads of a CTA among the statements of some blocks."""
        return sum(
            _BARRIER.match(operation) is not None
            for number in loop
            for _, operation, _ in self.blocks[number].statements
        )

    def innermost(self, parameters: frozenset[int]) -> list[frozenset[int]]:
        """The loops that read what one of the parameters points to, and hold no smaller loop that does."""
        reading = [
            loop
            for loop in self.loops
            if any(one.is_load and one.block in loop and one.parameters & parameters for one in self.accesses)
        ]
        return [loop for loop in reading if not any(other < loop for other in reading)]

    def _find_accesses(self) -> Iterator[Access]:
        origin = _origins(self.blocks)
        for number, block in enumerate(self.blocks):
            for _, operation, operands in block.statements:
                found, copied = _GLOBAL.match(operation), _COPY.match(operation)
                addresses = re.findall(r"\[([^\]]*)\]", operands)
                if found is not None:
                    num_bytes = int(found[2] or 1) * int(found[3]) // 8
                    registers, is_load = _REGISTER.findall(addresses[0]), found[1] in ("ld", "atom")
                elif copied is not None:
                    num_bytes = int(operands.rsplit("]", 1)[1].split(",")[1], 0)
                    registers, is_load = _REGISTER.findall(addresses[1]), True
                else:
                    continue
                parameters = frozenset().union(*(origin.get(register, frozenset()) for register in registers))
                yield Access(parameters & self._pointers, num_bytes, is_load, number)


def _blocks(ptx: str) -> list[Block]:
    """The basic blocks of the body, with their successors."""
    body = re.sub(r"//[^\n]*", "", ptx)
    blocks = [Block()]
    ended = False
    for line in body[body.index("{", body.index(".entry")) + 1 :].splitlines():
        label = re.match(r"\s*(\$?\w+):", line)
        if label or ended:
            blocks.append(Block())
            ended = False
        if label:
            blocks[-1].labels.append(label[1])
            line = line[label.end() :]
        for text in line.split(";"):
            statement = _STATEMENT.match(text.strip().lstrip("{}").strip())
            if statement is None or text.strip().startswith("."):
                continue
            predicate, operation, operands = statement[1] or "", statement[2], statement[3]
            blocks[-1].statements.append((predicate, operation, operands))
            ended = operation.split(".")[0] in ("bra", "ret", "exit", "trap")
    place = {label: number for number, block in enumerate(blocks) for label in block.labels}
    for number, block in enumerate(blocks):
        predicate, operation, operands = block.statements[-1] if block.statements else ("", "", "")
        kind = operation.split(".")[0]
        if kind == "bra":
            block.successors.add(place[operands.strip()])
        falls_through = kind not in ("bra", "ret", "exit", "trap") or predicate
        if falls_through and number + 1 < len(blocks):
            block.successors.add(number + 1)
    return blocks


def _loops(blocks: list[Block]) -> list[frozenset[int]]:
    """The natural loops, as sets of blocks; branches back to one block make one loop."""
    every = frozenset(range(len(blocks)))
    before: list[set[int]] = [set() for _ in blocks]
    for number, block in enumerate(blocks):
        for successor in block.successors:
            before[successor].add(number)
    dominators = [every] * len(blocks)
    dominators[0] = frozenset({0})
    changed = True
    while changed:
        changed = False
        for number in range(1, len(blocks)):
            held = [dominators[one] for one in before[number]]
            found = frozenset.intersection(*held) | {number} if held else every
            changed |= found != dominators[number]
            dominators[number] = found
    loops: dict[int, set[int]] = {}
    for number, block in enumerate(blocks):
        for head in block.successors & dominators[number] if before[number] or not number else ():
            loop, waiting = loops.setdefault(head, {head}), [number]
            while waiting:
                one = waiting.pop()
                if one not in loop:
                    loop.add(one)
                    waiting += before[one]
    return [frozenset(loop) for loop in loops.values()]


def _origins(blocks: list[Block]) -> dict[str, frozenset[int]]:
    """The numbers of the parameters that the value of each register derives from."""
    origin: dict[str, frozenset[int]] = {}
    flows: list[tuple[list[str], list[str]]] = []
    for block in blocks:
        for _, operation, operands in block.statements:
            if operation.startswith("ld.param"):
                parameter = re.search(r"_param_(\d+)", operands)
                assert parameter is not None, operands
                for register in _REGISTER.findall(operands.split("[")[0]):
                    origin[register] = origin.get(register, frozenset()) | {int(parameter[1])}
            elif operation.startswith("st.shared"):
                flows.append(([_SHARED], _REGISTER.findall(operands.split("]", 1)[1])))
            elif operation.startswith("ld.shared"):
                flows.append((_REGISTER.findall(operands.split("[")[0]), [_SHARED]))
            elif operation.split(".")[0] not in ("ld", "st", "red", "atom", "cp", "bra", "ldmatrix", "wgmma", "mma"):
                first = operands[: operands.find("}") + 1] if operands.startswith("{") else operands.split(",")[0]
                flows.append((_REGISTER.findall(first), _REGISTER.findall(operands[len(first) :])))
    changed = True
    while changed:
        changed = False
        for to, sources in flows:
            found = frozenset().union(*(origin.get(source, frozenset()) for source in sources))
            for register in to if found else ():
                if not found <= origin.get(register, frozenset()):
                    origin[register] = origin.get(register, frozenset()) | found
                    changed = True
    return origin


def tensor_core_instructions(ptx: str) -> dict[str, int]:
    """How often each kind of them occurs."""
    return dict(sorted(Counter(MMA.findall(ptx)).items()))


def resources(cubin: bytes) -> dict[str, int]:
    """``registers`` of a thread, and ``stack_bytes`` of it, where those that do not fit are spilled."""
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [knobs.nvidia.cuobjdump.path, "-res-usage", file.name]
        said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    return {
        name: int(value)
        for key, name in (("REG", "registers"), ("STACK", "stack_bytes"))
        for value in re.findall(rf"{key}:(\d+)", said)
    }


def resident_ctas(registers: int, shared_bytes: int, num_warps: int) -> int:
    """CTAs that one SM of compute capability 9.0 holds at a time.

    Args:
        registers: of a thread.
        shared_bytes: of a CTA.
    """
    per_warp = -(-registers * 32 // REGISTER_UNIT) * REGISTER_UNIT
    warps = SM_REGISTERS // SM_PARTITIONS // per_warp * SM_PARTITIONS
    shared = -(-(shared_bytes + SHARED_RESERVED) // SHARED_UNIT) * SHARED_UNIT
    return min(SM_CTAS, min(SM_WARPS, warps) // num_warps, SM_SHARED_BYTES // shared)
