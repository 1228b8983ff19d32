"""The table of compiled kernels: resources and loads of each kernel for sm_90 at the widths of the four models.

    python -m tests.gpu_code.table --out compiled.json --csv compiled.csv [--before earlier.json]

The command needs Triton and no GPU, and runs without TRITON_INTERPRET. The host's own code chooses which kernels are
compiled (``absent.py``) in the calls of ``cases.py``; ``machine_code.py`` reads the result. A row stands for all
compiled kernels of one function at one width, and has the worst value in every column. With ``--before``, a cell of the
table that is printed shows both values where they differ, and the CSV has columns of their own for the earlier values.
"""

import argparse
import csv
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
import triton

from fullgnn.telemetry.screen import format_table
from tests.gpu_code.absent import Launch, recorded
from tests.gpu_code.cases import Case, all_cases
from tests.gpu_code.machine_code import VECTOR_BYTES, Program, resident_ctas, resources

SMALL = {"weight", "of_sources", "of_targets", "table"}
"""Arguments as small as a weight matrix, or with a number for each head, which do not count among the matrices that a
kernel reads."""

COLUMNS = {
    "compiled": lambda row: row["compiled"],
    "loads of 16 / 8 / fewer bytes": lambda row: _load_sizes(row["loads"]),
    "registers": lambda row: row["registers"],
    "spilled bytes": lambda row: row["stack_bytes"],
    "shared KB": lambda row: f"{row['shared_bytes'] / 1024:.1f}",
    "CTAs an SM": lambda row: row["ctas"],
    "barriers an iteration": lambda row: "-" if row["barriers"] is None else row["barriers"],
}


def compiled_rows(cases: Iterable[Case]) -> list[dict[str, Any]]:
    """A row for each function that each case compiles, in the order of the cases."""
    rows = []
    with recorded() as launches:
        for case in cases:
            launches.clear()
            case.call()
            distinct = {launch.compiled.asm["cubin"]: launch for launch in launches}
            for function in dict.fromkeys(launch.function for launch in distinct.values()):
                described = [describe(launch) for launch in distinct.values() if launch.function == function]
                about = {"kernel": case.kernel, "width": case.shape, "models": case.models, "function": function}
                rows.append(about | worst(described))
    return rows


def describe(launch: Launch) -> dict[str, Any]:
    """Resources of one compiled kernel, and how it reads its matrices.

    A matrix that the kernel reads is a floating-point argument with two dimensions that the kernel does not write, or,
    where no such argument exists, one that the kernel reads and writes. An iteration is one of the innermost loop that
    reads such a matrix.
    """
    program, metadata = Program.of(launch.compiled), launch.compiled.metadata
    matrices = {
        name: value
        for name, value in launch.arguments.items()
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.dim() > 1 and name not in SMALL
    }
    loaded, stored = (
        {name for access in program.accesses if access.is_load == is_load for name in access.arguments}
        for is_load in (True, False)
    )
    read = matrices.keys() & loaded - stored or matrices.keys() & loaded
    loads, loops = program.loads(read), program.innermost(read)
    in_loops = [load for load in loads if any(load.place in loop for loop in loops)]
    sizes = [load.num_bytes for load in in_loops or loads]
    used = resources(launch.compiled.asm["cubin"])
    return {
        "loads": {str(size): sizes.count(size) for size in sorted(set(sizes), reverse=True)},
        "scalar_loads": sum(
            load.num_bytes == min(matrices[name].itemsize for name in load.arguments & read) for load in loads
        ),
        "barriers": max((program.barriers(loop) for loop in loops), default=None),
        **used,
        "shared_bytes": metadata.shared,
        "ctas": resident_ctas(used["registers"], metadata.shared, metadata.num_warps),
    }


def worst(compiled: list[dict[str, Any]]) -> dict[str, Any]:
    """One row for several compiled kernels, with the worst value in every column."""

    def narrowness(row: dict[str, Any]) -> tuple[int, int]:
        narrow = sum(count for size, count in row["loads"].items() if int(size) < VECTOR_BYTES)
        return narrow, sum(row["loads"].values())

    largest = ("scalar_loads", "registers", "stack_bytes", "shared_bytes")
    return {
        "compiled": len(compiled),
        "loads": max(compiled, key=narrowness)["loads"],
        **{key: max(row[key] for row in compiled) for key in largest},
        "ctas": min(row["ctas"] for row in compiled),
        "barriers": max((row["barriers"] for row in compiled if row["barriers"] is not None), default=None),
    }


FIGURES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "compiled": lambda row: row["compiled"],
    "loads_of_16_bytes": lambda row: row["loads"].get("16", 0),
    "loads_of_8_bytes": lambda row: row["loads"].get("8", 0),
    "loads_of_fewer_bytes": lambda row: sum(count for size, count in row["loads"].items() if int(size) < 8),
    "registers": lambda row: row["registers"],
    "spilled_bytes": lambda row: row["stack_bytes"],
    "shared_bytes": lambda row: row["shared_bytes"],
    "ctas_an_sm": lambda row: row["ctas"],
    "barriers_an_iteration": lambda row: row["barriers"],
}
"""The columns of the CSV, each of which stands there twice: the value before, and now."""


def write_csv(rows: list[dict[str, Any]], before: list[dict[str, Any]], path: Path) -> None:
    """A line for each function of a kernel at one width, before or now."""
    now, then = ({(row["kernel"], row["width"], row["function"]): row for row in table} for table in (rows, before))
    with path.open("w", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(["kernel", "width", "function", *(name for col in FIGURES for name in (f"{col}_before", col))])
        for key in {**now, **then}:
            figures = [(then.get(key), now.get(key), of) for of in FIGURES.values()]
            lines.writerow([*key, *("" if row is None else of(row) for *both, of in figures for row in both)])


def make_table(rows: list[dict[str, Any]], before: list[dict[str, Any]]) -> str:
    """The table in Markdown. Widths at which a function has the same cells share a row. Rows that the kernels of
    panels leave to ``csr`` are not repeated."""
    now, then = ({(row["kernel"], row["width"], row["function"]): row for row in table} for table in (rows, before))
    places = {key[:2]: place for place, key in reversed([*enumerate((*now, *then))])}
    widths: dict[tuple[str, ...], list[str]] = {}
    for key in sorted({*now, *then}, key=lambda key: (places[key[:2]], key)):
        kernel, width, function = key
        if function == "sum_rows" and kernel.startswith(("tile32", "packed", "gat")):
            continue
        new, old = _cells(now.get(key)), _cells(then.get(key))
        both = [a if a == b else f"{a} → {b}" for a, b in zip(old, new)]
        widths.setdefault((kernel, function, *(both if before else new)), []).append(width)
    cells = [[kernel, "; ".join(same), *rest] for (kernel, *rest), same in widths.items()]
    return f"{format_table(['kernel', 'width', 'function', *COLUMNS], cells)}\n"


def _cells(row: dict[str, Any] | None) -> list[str]:
    return ["none" if row is None else str(column(row)) for column in COLUMNS.values()]


def _load_sizes(loads: dict[str, int]) -> str:
    fewer = sum(count for size, count in loads.items() if int(size) < 8)
    return f"{loads.get('16', 0)} / {loads.get('8', 0)} / {fewer}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu_code.table", description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, help="write the JSON here")
    parser.add_argument("--csv", type=Path, help="write the figures here")
    parser.add_argument("--before", type=Path, help="the JSON of an earlier checkout, to compare with")
    parser.add_argument("--kernels", help="only these, separated by commas")
    parser.add_argument("--widths", help="only these, separated by commas")
    options = parser.parse_args(arguments)

    def wanted(kernel: str, width: str) -> bool:
        chosen = ((options.kernels, kernel), (options.widths, width))
        return all(names is None or name in names.split(",") for names, name in chosen)

    rows = compiled_rows(case for case in all_cases() if wanted(case.kernel, case.shape))
    if options.out is not None:
        body = ",\n".join(json.dumps(row) for row in rows)
        options.out.write_text(f'{{"target": "sm_90", "triton": "{triton.__version__}", "rows": [\n{body}\n]}}\n')
    before = [] if options.before is None else json.loads(options.before.read_text())["rows"]
    before = [row for row in before if wanted(row["kernel"], row["width"])]
    if options.csv is not None:
        write_csv(rows, before, options.csv)
    print(make_table(rows, before), end="")


if __name__ == "__main__":
    main()
