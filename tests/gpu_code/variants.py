"""Compile the variants of the GPU modules for three generations of GPUs, without a GPU, and print the results.

    python -m tests.gpu_code.variants [--all] [fullgnn.kernels.dropout._philox_gpu ...]

Without --all, a sample of them is compiled, each variant for one generation, in turns. The command runs without
TRITON_INTERPRET. A module ``_*_gpu.py`` offers ``variants()``, which yields for each representative call

    kernel      the ``triton.jit`` function
    signature   {argument: type}; ":16" after a type says that the address, or the number, is a multiple of 16
    constants   {argument: value}, those that are constexpr, None or 1 in the call
    options     {"num_warps": 4, ...}

The command prints a line of JSON for each variant and target, with the key ``error`` where the compilation failed.
"""

import importlib
import itertools
import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.gpu_code.machine_code import Program, resources

CAPABILITIES = (80, 90, 100)
MOST, RARE = 8, 4
"""Variants of a module in a sample, and how many variants at its end are the rare ones, all of which are in it."""
TENSOR_CORES = re.compile(r"^\s*(?:@\S+\s+)?(mma\.sync|wgmma\.mma_async|tcgen05\.mma)", re.MULTILINE)
WIDE = re.compile(r"(?:ld|st)\.global\S*\.(?:v4\.[bfu]32|v2\.[bfu]64)|cp\.async\S*[^;]*, 0x10")  # 16 bytes at once


def compile_variant(task: tuple[str, Any, dict[str, str], dict[str, Any], dict[str, Any], int]) -> dict[str, Any]:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    module, kernel, signature, constants, options, capability = task
    line = {"module": module, "kernel": kernel.__name__, "capability": capability, "constants": repr(constants)}
    try:
        missing = {*kernel.arg_names} ^ {*signature, *constants}
        assert not missing and not {*signature} & {*constants}, f"arguments that are not given just once: {missing}"
        types = {name: signature.get(name, "constexpr").split(":")[0] for name in kernel.arg_names}
        aligned = [index for index, name in enumerate(kernel.arg_names) if signature.get(name, "").endswith(":16")]
        attributes = {(index,): [["tt.divisibility", 16]] for index in aligned}
        source = ASTSource(kernel, types, {(kernel.arg_names.index(n),): v for n, v in constants.items()}, attributes)
        compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    except Exception as error:  # one variant that fails does not hide the others
        return line | {"error": f"{type(error).__name__}: {error}"}
    program = Program.of(compiled)
    read = {"planes" if kernel.__name__ == "multiply_planes" else "x"}
    return line | {
        "options": options,
        "cubin_bytes": len(compiled.asm["cubin"]),
        "shared_bytes": compiled.metadata.shared,
        "bytes_of_loads_of_x": sorted({one.num_bytes for one in program.loads(read)}),
        "wide_accesses": len(WIDE.findall(compiled.asm["ptx"])),
        "tensor_cores": sorted(set(TENSOR_CORES.findall(compiled.asm["ptx"]))),
        **resources(compiled.asm["cubin"]),
    }


def gpu_modules() -> list[str]:
    """The modules of the package that hold kernels."""
    import fullgnn

    root = Path(fullgnn.__file__).parent
    paths = sorted(path.relative_to(root.parent).with_suffix("") for path in root.rglob("_*_gpu.py"))
    return [".".join(path.parts) for path in paths]


def sample(variants: list[Any]) -> list[tuple[Any, int]]:
    """A dozen of the ``variants`` of a module at most, each with a generation; all generations are among them."""
    usual, rare = variants[:-RARE], variants[-RARE:]
    some = usual[:: 1 + len(usual) // MOST] + rare
    if len(some) < len(CAPABILITIES):
        return [(some[0], capability) for capability in CAPABILITIES] + [(one, CAPABILITIES[0]) for one in some[1:]]
    return list(zip(some, itertools.cycle(CAPABILITIES)))


def main(modules: list[str], every: bool) -> None:
    chosen = {module: list(importlib.import_module(module).variants()) for module in modules}
    tasks = [
        (module, *variant, capability)
        for module, variants in chosen.items()
        for variant, capability in (itertools.product(variants, CAPABILITIES) if every else sample(variants))
    ]
    with ThreadPoolExecutor(2) as pool:
        for line in pool.map(compile_variant, tasks):
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    named = [argument for argument in sys.argv[1:] if argument != "--all"]
    main(named or gpu_modules(), "--all" in sys.argv)
