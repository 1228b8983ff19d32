"""Compiles what the GPU modules offer for three generations of GPUs, without one, and says what came out.

    python -m tests.compiled fullgnn._philox_gpu ...

Run it without TRITON_INTERPRET. A module ``_*_gpu.py`` offers ``variants()``, which yields of each representative call

    kernel      the ``triton.jit`` function
    signature   {argument: type}; ":16" after a type says that the address, or the number, is a multiple of 16
    constants   {argument: value}, those that are constexpr, None or 1 in the call
    options     {"num_warps": 4, ...}

and for each variant and target one line of JSON comes out, or ``error`` in it.
"""

import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

CAPABILITIES = (80, 90, 100)
MMA = re.compile(r"^\s*(?:@\S+\s+)?(mma\.sync|wgmma\.mma_async|tcgen05\.mma)", re.MULTILINE)
WIDE = re.compile(r"(?:ld|st)\.global\S*\.(?:v4\.[bfu]32|v2\.[bfu]64)|cp\.async\S*[^;]*, 0x10")  # 16 bytes at once

LOCATION = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)")
FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]+)"', re.MULTILINE)
LOAD = re.compile(
    r"\b(?:ld\.global\S*?(?:\.v(?P<count>\d))?\.[bfus](?P<bits>\d+)\s|cp\.async\.c[ag]\S+ .*, (?P<bytes>0x\w+))"
)
OF_X = "# of X"  # ends a line of a kernel that loads X


def bytes_of_loads(ptx: str) -> list[int]:
    """The different sizes of the loads that lines with the comment ``OF_X`` became, in ascending order."""
    files = {
        int(number): Path(path).read_text().splitlines() for number, path in FILE.findall(ptx) if path[-3:] == ".py"
    }
    found, marked = set(), False
    for line in ptx.splitlines():
        if location := LOCATION.match(line):
            file, number = (int(part) for part in location.groups())
            marked = OF_X in files[file][number - 1] if file in files else False
        elif marked and (load := LOAD.search(line)):
            whole, count, bits = load["bytes"], load["count"], load["bits"]
            found.add(int(whole, 16) if whole else int(count or 1) * int(bits) // 8)
    return sorted(found)


def barriers_in_loops(ptx: str, load: str) -> list[int]:
    """Barriers in each of the innermost loops that contain ``load``."""
    lines, labels, loops = ptx.splitlines(), dict[str, int](), list[tuple[int, int]]()
    for number, line in enumerate(lines):
        if label := re.match(r"(\$L\w+):", line):
            labels[label[1]] = number
        elif (jump := re.search(r"\bbra(?:\.uni)?\s+(\$L\w+)", line)) and jump[1] in labels:
            loops.append((labels[jump[1]], number))
    innermost = [(a, b) for a, b in loops if not any(a <= c and d <= b and (a, b) != (c, d) for c, d in loops)]
    bodies = ["\n".join(lines[first:last]) for first, last in innermost]
    return [body.count("bar.sync") for body in bodies if load in body]


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
    found, wide = MMA.findall(compiled.asm["ptx"]), WIDE.findall(compiled.asm["ptx"])
    return line | {
        "options": options,
        "cubin_bytes": len(compiled.asm["cubin"]),
        "shared_bytes": compiled.metadata.shared,
        "wide_accesses": len(wide),
        "barriers_in_loops_over_x": barriers_in_loops(compiled.asm["ptx"], "L1::evict_last"),
        "bytes_of_loads_of_x": bytes_of_loads(compiled.asm["ptx"]),
        "mma": {name: found.count(name) for name in sorted(set(found))},
        **_resources(compiled.asm["cubin"]),
    }


def _resources(cubin: bytes) -> dict[str, int]:
    """Registers of a thread, and the bytes of its stack, where those that do not fit are spilled."""
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


def gpu_modules() -> list[str]:
    """The modules of the package that hold kernels."""
    import fullgnn

    root = Path(fullgnn.__file__).parent
    paths = sorted(path.relative_to(root.parent).with_suffix("") for path in root.rglob("_*_gpu.py"))
    return [".".join(path.parts) for path in paths]


def keep_cache_apart() -> None:
    """Triton finds compiled code by the text of a kernel, not by its file: a copy of the repository elsewhere, which
    may have changed since, would be named in it."""
    folder = Path(os.environ.get("TRITON_CACHE_DIR", Path.home() / ".triton" / "cache"))
    os.environ["TRITON_CACHE_DIR"] = str(folder / f"compiled-{zlib.crc32(__file__.encode()):08x}")


def main(modules: list[str]) -> None:
    keep_cache_apart()
    tasks = [
        (module, *variant, capability)
        for module in modules
        for variant in importlib.import_module(module).variants()
        for capability in CAPABILITIES
    ]
    with ThreadPoolExecutor(2) as pool:
        for line in pool.map(compile_variant, tasks):
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or gpu_modules())
