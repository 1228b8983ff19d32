"""The table of compiled kernels: what the machine code for sm_90 says of each kernel at the widths of the four models.

    python -m fullgnn.bench.gpu.compiled --out compiled.json --page compiled.md [--before earlier.json]

It needs Triton and no GPU, and runs without TRITON_INTERPRET. The host's own code chooses what is compiled
(``absent.py``, ``compiled_cases.py``); ``machine_code.py`` reads the result. A row stands for all that is compiled of
one function at one width, with the worst of it in every column. With ``--before``, a cell that differs from that
file's shows both. An earlier checkout makes its file with these four modules copied into it.
"""

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import triton

from fullgnn.bench.gpu.absent import Launch, recorded
from fullgnn.bench.gpu.compiled_cases import Case, dense_cases, sparse_cases
from fullgnn.bench.gpu.machine_code import VECTOR_BYTES, Program, resident_ctas, resources
from fullgnn.telemetry.table import format_table

WEIGHTS = {"weight"}
"""Arguments that are matrices as small as a weight's: not counted among the matrices that are read."""

HEADER = (
    "kernel",
    "width",
    "function",
    "compiled",
    "loads of 16 / 8 / fewer bytes",
    "registers",
    "spilled bytes",
    "shared KB",
    "CTAs an SM",
    "barriers an iteration",
)

INTRODUCTION = """## Compiled for sm_90

What the host asks a GPU for at the widths of the four models, compiled without a GPU and read from the PTX and the
machine code by `python -m fullgnn.bench.gpu.compiled`. A row is one function of a kernel at one width of X, or one
shape of a dense product (602/608 x 128: X has 602 columns in rows 608 apart), and has the worst of its compiled kernels
in each column: rows of every number of edges, the parts of heavy rows and of long panels, with and without an
epilogue. "Loads" are those of X, or of the other tall matrices, that one thread makes in an iteration of the innermost
loop, by the bytes that a load moves; CTAs an SM follow from registers, shared memory and warps. "a → b" is before and
after; "none": there is no such kernel.
"""


def compile_cases(wanted: Callable[[Case], bool]) -> Iterator[dict[str, Any]]:
    """The distinct compiled kernels of all cases that are ``wanted``."""
    with recorded() as launches:
        for case in filter(wanted, (*sparse_cases(), *dense_cases())):
            launches.clear()
            case.make()
            yield from compiled_kernels(case, launches)


def compiled_kernels(case: Case, launches: list[Launch]) -> list[dict[str, Any]]:
    """What the launches of a case have compiled: a dictionary for each distinct compiled kernel."""
    distinct = {launch.compiled.asm["cubin"]: launch for launch in launches}
    about = {"kernel": case.kernel, "width": case.shape, "models": list(case.models)}
    return [about | {"function": launch.function} | describe(launch) for launch in distinct.values()]


def describe(launch: Launch) -> dict[str, Any]:
    """Resources of one compiled kernel, and how it reads its matrices.

    A matrix that is read is an argument in floating point with two dimensions that the kernel does not write; where
    there is none, one that it reads and writes. An iteration is one of the innermost loop that reads such a matrix.
    """
    compiled, names = launch.compiled, launch.pointer_names()
    program = Program(compiled.asm["ptx"], names)
    matrices = {
        number: tensor
        for number, name in names.items()
        if isinstance(tensor := launch.arguments[name], torch.Tensor)
        and tensor.is_floating_point()
        and tensor.dim() > 1
        and name not in WEIGHTS
    }
    loaded = {number for one in program.accesses if one.is_load for number in one.parameters}
    stored = {number for one in program.accesses if not one.is_load for number in one.parameters}
    read = frozenset(matrices.keys() & loaded - stored or matrices.keys() & loaded)
    loads = [one for one in program.accesses if one.is_load and one.parameters & read]
    loops = program.innermost(read)
    in_loops = [one for one in loads if any(one.block in loop for loop in loops)]
    widths = [one.num_bytes for one in in_loops or loads]
    used = resources(compiled.asm["cubin"])
    num_warps, shared_bytes = compiled.metadata.num_warps, compiled.metadata.shared
    return {
        "loads": {str(size): widths.count(size) for size in sorted(set(widths), reverse=True)},
        "scalar_loads": sum(
            one.num_bytes == min(matrices[number].itemsize for number in one.parameters & read) for one in loads
        ),
        "barriers": max((program.barriers(loop) for loop in loops), default=None),
        **used,
        "shared_bytes": shared_bytes,
        "ctas": resident_ctas(used["registers"], shared_bytes, num_warps),
    }


def summarize(lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each function of each kernel at each width: the worst of what was compiled in every column."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for one in lines:
        groups.setdefault(key_of(one), []).append(one)
    return [_worst(group) for group in groups.values()]


def key_of(row: dict[str, Any]) -> tuple[str, ...]:
    """What two files have in common for the same row."""
    return row["kernel"], row["width"], row["function"]


def _worst(group: list[dict[str, Any]]) -> dict[str, Any]:
    def narrowness(one: dict[str, Any]) -> tuple[int, int]:
        narrow = sum(count for size, count in one["loads"].items() if int(size) < VECTOR_BYTES)
        return narrow, sum(one["loads"].values())

    barriers = [one["barriers"] for one in group if one["barriers"] is not None]
    largest = ("scalar_loads", "registers", "stack_bytes", "shared_bytes")
    return group[0] | {
        "compiled": len(group),
        "loads": max(group, key=narrowness)["loads"],
        **{key: max(one[key] for one in group) for key in largest},
        "ctas": min(one["ctas"] for one in group),
        "barriers": max(barriers, default=None),
    }


def make_page(rows: list[dict[str, Any]], before: list[dict[str, Any]]) -> str:
    """The section for a page. What the panels' kernels leave to ``csr`` is not repeated under each of them, and widths
    at which a function has the same cells share a row."""
    now, then = ({key_of(row): row for row in table} for table in (rows, before))
    places = {key[:2]: place for place, key in reversed([*enumerate((*now, *then))])}
    widths: dict[tuple[str, ...], list[str]] = {}
    for key in sorted({*now, *then}, key=lambda key: (places[key[:2]], key)):
        kernel, width, function = key
        if function == "sum_rows" and kernel.startswith(("tile32", "packed")):
            continue
        new, old = (_cells(table[key]) if key in table else None for table in (now, then))
        widths.setdefault((kernel, function, *_change(old, new, bool(before))), []).append(width)
    cells = [[kernel, "; ".join(found), *rest] for (kernel, *rest), found in widths.items()]
    return f"{INTRODUCTION}\n{format_table(list(HEADER), cells)}\n"


def _cells(row: dict[str, Any]) -> list[str]:
    counts = {int(size): count for size, count in row["loads"].items()}
    sizes = (counts.get(16, 0), counts.get(8, 0), sum(count for size, count in counts.items() if size < 8))
    numbers = [str(row[key]) for key in ("registers", "stack_bytes")]
    shared, barriers = f"{row['shared_bytes'] / 1024:.1f}", "-" if row["barriers"] is None else str(row["barriers"])
    return [str(row["compiled"]), " / ".join(map(str, sizes)), *numbers, shared, str(row["ctas"]), barriers]


def _change(old: list[str] | None, new: list[str] | None, compared: bool) -> list[str]:
    """The cells of a row: those of both files where they differ."""
    if not compared or old == new:
        return new or []
    width = len(HEADER) - 3
    pairs = zip(old or ["none"] * width, new or ["none"] * width)
    return [a if a == b else f"{a} → {b}" for a, b in pairs]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m fullgnn.bench.gpu.compiled", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, help="write the JSON here")
    parser.add_argument("--page", type=Path, help="write the table here instead of printing it")
    parser.add_argument("--before", type=Path, help="the JSON of an earlier checkout, to compare with")
    parser.add_argument("--kernels", help="only these, separated by commas")
    parser.add_argument("--widths", help="only these, separated by commas")
    options = parser.parse_args(arguments)
    kernels, widths = (None if text is None else text.split(",") for text in (options.kernels, options.widths))

    def wanted(kernel: str, width: str) -> bool:
        return (kernels is None or kernel in kernels) and (widths is None or width in widths)

    rows = summarize(compile_cases(lambda case: wanted(case.kernel, case.shape)))
    if options.out is not None:
        body = ",\n".join(json.dumps(row) for row in rows)
        options.out.write_text(f'{{"target": "sm_90", "triton": "{triton.__version__}", "rows": [\n{body}\n]}}\n')
    before = [] if options.before is None else json.loads(options.before.read_text())["rows"]
    page = make_page(rows, [row for row in before if wanted(row["kernel"], row["width"])])
    if options.page is None:
        print(page, end="")
    else:
        options.page.write_text(page)


if __name__ == "__main__":
    main()
