"""What the host launches in calls at representative shapes, and how the compiled kernels access each argument.

    python -m tests.gpu_code.launched [--asked] [--generation 80] [--every 3] [attention ...]

The command needs Triton and no GPU, and runs without TRITON_INTERPRET. It prints a line of JSON for each kernel that
the calls of some families, or of all, compile for sm_90 or another generation of GPUs: the call, the kernel, what it
uses, which instructions of tensor cores it has, and for each matrix of floating-point numbers among its arguments

    loads, stores   how many bytes they move at a time
    alignment       of all rows: no access of a GPU may be wider
    num_rows, and row_bytes, of the columns of one row

With --asked, it prints the names of the kernels that the calls ask for and compiles nothing.
"""

import argparse
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tests.gpu_code.absent import CAPABILITY, Launch, recorded
from tests.gpu_code.cases import Case, products, sparse_kernels
from tests.gpu_code.commands import FAMILIES, GENERATIONS
from tests.gpu_code.edges import attention_cases, reduction_cases, weighted_cases
from tests.gpu_code.machine_code import VECTOR_BYTES, Program, resident_ctas, resources
from tests.gpu_code.rare import rare_cases
from tests.gpu_code.rows import row_cases, score_cases, single_use_cases, wide_cases
from tests.gpu_code.sampler import codec_cases, sampler_cases

TENSOR_CORES = re.compile(r"^\s*(?:@\S+\s+)?(mma\.sync|wgmma\.mma_async|tcgen05\.mma)", re.MULTILINE)


def product_cases() -> Iterator[Case]:
    """The calls of the table: the family of a sparse product is its kernel, and that of all others is "dense"."""
    kernels = sparse_kernels()
    for case in products():
        yield case if case.kernel in kernels else replace(case, kernel="dense", shape=f"{case.kernel} {case.shape}")


SOURCES: tuple[Callable[[], Iterable[Case]], ...] = (
    attention_cases,
    reduction_cases,
    weighted_cases,
    row_cases,
    wide_cases,
    single_use_cases,
    score_cases,
    sampler_cases,
    codec_cases,
    product_cases,
    rare_cases,
)


def cases_of(families: Iterable[str]) -> list[Case]:
    return [case for source in SOURCES for case in source() if case.kernel in families]


def kernels_asked_for() -> set[str]:
    """The full names of the kernels that the calls of all families ask for."""
    with recorded(compiles=False) as launches:
        for case in cases_of(FAMILIES):
            case.call()
    return {f"{launch.module}.{launch.function}" for launch in launches}


def compiled_lines(cases: Iterable[Case], generation: int) -> Iterator[dict[str, Any]]:
    """A line for each compiled kernel of each case."""
    with recorded(capability=generation) as launches:
        for case in cases:
            launches.clear()
            case.call()
            for launch in {launched.compiled.asm["cubin"]: launched for launched in launches}.values():
                about = {"family": case.kernel, "shape": case.shape, "kernel": f"{launch.module}.{launch.function}"}
                yield about | describe(launch)


def describe(launch: Launch) -> dict[str, Any]:
    """What a compiled kernel uses, and how it accesses its matrices."""
    program, metadata = Program.of(launch.compiled), launch.compiled.metadata
    used = resources(launch.compiled.asm["cubin"])
    matrices = {
        name: value
        for name, value in launch.arguments.items()
        if isinstance(value, Tensor) and value.is_floating_point() and value.dim() > 1
    }

    def sizes(name: str, is_load: bool) -> list[int]:
        return sorted({op.num_bytes for op in program.accesses if name in op.arguments and op.is_load == is_load})

    return {
        "matrices": {
            name: {
                "alignment": alignment(x),
                "num_rows": len(x),
                "row_bytes": x[0].numel() * x.itemsize if len(x) else 0,
                "loads": sizes(name, is_load=True),
                "stores": sizes(name, is_load=False),
            }
            for name, x in matrices.items()
        },
        "tensor_cores": sorted(set(TENSOR_CORES.findall(launch.compiled.asm["ptx"]))),
        "ctas": resident_ctas(used["registers"], metadata.shared, metadata.num_warps),
        **used,
    }


def alignment(x: Tensor) -> int:
    """The bytes, 16 at most, of which the address of every row of (n, F) ``x`` is a multiple."""
    strides = [x.stride(0) * x.itemsize] if len(x) > 1 else []
    return math.gcd(VECTOR_BYTES, x.data_ptr(), *strides)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu_code.launched", description=__doc__.split("\n")[0])
    parser.add_argument("--asked", action="store_true", help="print the kernels that the calls ask for, and no more")
    parser.add_argument("--generation", type=int, choices=GENERATIONS, default=CAPABILITY, help="that is compiled for")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="compile each N-th call alone")
    parser.add_argument("families", nargs="*", default=[], help=f"some of {', '.join(FAMILIES)}; without, all")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if options.asked:
        print(*sorted(kernels_asked_for()), sep="\n")
        return
    cases = cases_of(options.families or FAMILIES)[:: options.every]
    for line in compiled_lines(cases, options.generation):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
