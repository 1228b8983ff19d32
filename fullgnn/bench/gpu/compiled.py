"""The table of compiled kernels: what the machine code for sm_90 says of each kernel at the widths of the four models.

    python -m fullgnn.bench.gpu.compiled --out compiled.json --page compiled.md [--before earlier.json]

It needs Triton and no GPU, and runs without TRITON_INTERPRET. The host's own code chooses what is compiled
(``absent.py``, ``compiled_cases.py``); ``machine_code.py`` reads the result. The JSON has a line for each compiled
kernel; the page has a row for each function at each width, with the worst of its compiled kernels in every column.
With ``--before``, a cell that differs from that file's shows both.
"""

import argparse
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import triton

from fullgnn.bench.gpu.absent import Launch, recorded
from fullgnn.bench.gpu.compiled_cases import Case, dense_cases, sparse_cases
from fullgnn.bench.gpu.machine_code import VECTOR_BYTES, Program, resident_ctas, resources
from fullgnn.report.table import format_table

WEIGHTS = {"weight"}
"""Arguments that are matrices as small as a weight's: not counted among the matrices that are read."""

HEADER = (
    "kernel",
    "width",
    "function",
    "compiled",
    "loads of 16 / 8 / 4 bytes",
    "registers",
    "spilled bytes",
    "shared KB",
    "CTAs an SM",
    "barriers an iteration",
)


def compile_cases(wanted: Callable[[Case], bool]) -> Iterator[dict[str, Any]]:
    """The distinct compiled kernels of all cases that are ``wanted``."""
    with recorded() as launches:
        for case in filter(wanted, (*sparse_cases(), *dense_cases())):
            launches.clear()
            case.make()
            yield from compiled_kernels(case, launches)


def compiled_kernels(case: Case, launches: list[Launch]) -> list[dict[str, Any]]:
    """What the launches of a case have compiled: a dictionary for each distinct compiled kernel."""
    found: dict[str, dict[str, Any]] = {}
    for launch in launches:
        cubin = launch.compiled.asm["cubin"]
        name = hashlib.sha256(cubin).hexdigest()[:12]
        if name in found:
            found[name]["launches"] += 1
        else:
            about = {"kernel": case.kernel, "width": case.shape, "models": list(case.models)}
            found[name] = about | {"function": launch.function, "cubin": name, "launches": 1} | describe(launch)
    return list(found.values())


def describe(launch: Launch) -> dict[str, Any]:
    """Of one ``absent.Launch``: options, resources, and how it reads its matrices.

    A matrix that is read is an argument in floating point with two dimensions that the kernel does not write; where
    there is none, one that it reads and writes. An iteration is one of the innermost loop that reads such a matrix.
    """
    compiled, names = launch.compiled, launch.pointer_names()
    program = Program(compiled.asm["ptx"], names)
    matrices = {
        number
        for number, name in names.items()
        if isinstance(tensor := launch.arguments[name], torch.Tensor)
        and tensor.is_floating_point()
        and tensor.dim() > 1
        and name not in WEIGHTS
    }
    loaded = {number for one in program.accesses if one.is_load for number in one.parameters}
    stored = {number for one in program.accesses if not one.is_load for number in one.parameters}
    read = frozenset(matrices & loaded - stored or matrices & loaded)
    loads = [one.num_bytes for one in program.accesses if one.is_load and one.parameters & read]
    loops = program.innermost(read)
    in_loops = [
        one.num_bytes
        for one in program.accesses
        if one.is_load and one.parameters & read and any(one.block in loop for loop in loops)
    ]
    used = resources(compiled.asm["cubin"])
    num_warps, shared_bytes = compiled.metadata.num_warps, compiled.metadata.shared
    return {
        "matrices": sorted(names[number] for number in read),
        "loads": {str(size): loads.count(size) for size in sorted(set(loads), reverse=True)},
        "loads_in_loop": {str(size): in_loops.count(size) for size in sorted(set(in_loops), reverse=True)},
        "barriers_in_loop": max((program.barriers(loop) for loop in loops), default=None),
        **used,
        "shared_bytes": shared_bytes,
        "num_warps": num_warps,
        "ctas": resident_ctas(used["registers"], shared_bytes, num_warps),
        "constants": constants(launch),
    }


def constants(launch: Launch) -> dict[str, Any]:
    """The compile-time constants of a launch that are numbers or words, by name."""
    names = list(launch.compiled.src.signature)
    held = {names[place[0]]: value for place, value in launch.compiled.src.constants.items()}
    return {name: value for name, value in held.items() if isinstance(value, (int, str)) and name.isupper()}


def is_vectorized(one: dict[str, Any]) -> bool:
    """Whether a compiled kernel reads its matrices with whole vectors alone."""
    return all(int(size) >= VECTOR_BYTES for size in one["loads"])


def summarize(lines: Iterable[dict[str, Any]]) -> dict[tuple[str, str, str], dict[str, Any]]:
    """The worst of the compiled kernels of each function, by kernel, width and function."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for one in lines:
        groups.setdefault((one["kernel"], one["width"], one["function"]), []).append(one)
    return {key: _worst(group) for key, group in groups.items()}


def _worst(group: list[dict[str, Any]]) -> dict[str, Any]:
    def narrowness(one: dict[str, Any]) -> tuple[int, int]:
        narrow = sum(count for size, count in one["loads"].items() if int(size) < VECTOR_BYTES)
        return narrow, sum(one["loads_in_loop"].values())

    loads = max(group, key=narrowness)
    barriers = [one["barriers_in_loop"] for one in group if one["barriers_in_loop"] is not None]
    return {
        "compiled": len(group),
        "loads": loads["loads_in_loop"] or loads["loads"],
        **{key: max(one[key] for one in group) for key in ("registers", "stack_bytes", "shared_bytes")},
        "ctas": min(one["ctas"] for one in group),
        "barriers": max(barriers, default=None),
    }


def make_page(lines: list[dict[str, Any]], before: list[dict[str, Any]]) -> str:
    """The table as Markdown. The rows that panel kernels leave to ``csr`` are not repeated under each of them."""
    now, then = summarize(lines), summarize(before)
    rows = []
    for key in dict.fromkeys((*then, *now)):
        kernel, _, function = key
        if function == "sum_rows" and kernel.startswith(("tile32", "packed")):
            continue
        new, old = (_cells(table[key]) if key in table else None for table in (now, then))
        rows.append([*key, *_change(old, new, bool(before))])
    return format_table(list(HEADER), rows) + "\n"


def _cells(one: dict[str, Any]) -> list[str]:
    sizes = " / ".join(str(one["loads"].get(size, 0)) for size in ("16", "8", "4"))
    barriers = "-" if one["barriers"] is None else str(one["barriers"])
    shared = f"{one['shared_bytes'] / 1024:.1f}"
    compiled, registers, stack, ctas = (str(one[key]) for key in ("compiled", "registers", "stack_bytes", "ctas"))
    return [compiled, sizes, registers, stack, shared, ctas, barriers]


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

    def wanted(case: Case) -> bool:
        return (kernels is None or case.kernel in kernels) and (widths is None or case.shape in widths)

    lines = list(compile_cases(wanted))
    if options.out is not None:
        about = {"target": "sm_90", "triton": triton.__version__}
        body = ",\n".join(json.dumps(line) for line in lines)
        options.out.write_text(f'{{"about": {json.dumps(about)}, "compiled": [\n{body}\n]}}\n')
    before = [] if options.before is None else json.loads(options.before.read_text())["compiled"]
    page = make_page(lines, before)
    if options.page is None:
        print(page, end="")
    else:
        options.page.write_text(page)


if __name__ == "__main__":
    main()
