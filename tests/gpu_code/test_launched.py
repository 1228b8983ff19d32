"""Every kernel of the package, compiled as the host launches it: alignment, 16-byte loads, registers, tensor cores."""

import ast
import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest

from tests.gpu_code.commands import FAMILIES, GENERATIONS, output_of
from tests.gpu_code.source import ROOT, kernels
from tests.triton_device import needs_triton

TALL = {"x", "grad", "messages", "logits", "planes"}
"""The matrices with a row for each node or edge, of which each program reads rows again and again."""

NARROW: dict[tuple[str, str], tuple[str, ...]] = {
    # 16 edges by 8 columns are one number for each thread.
    ("largest_neighbours", "x"): ("8",),
    ("sum_messages", "messages"): ("8",),
    ("largest_gradients", "grad"): ("8",),
    # Only the columns that a source has won are read.
    ("gradients_of_winners", "grad"): ("8", "64", "128", "64 unaligned", "16 float64"),
    # No model drops the columns of its last layer.
    ("_dropout", "x"): ("41 padded", "47 padded"),
    # The last 8 of 100 columns in bfloat16.
    ("sum_rows", "x"): ("products of 41 to 128",),
}
"""Kernel and matrix, and the shapes at which a load of it is narrower than 16 bytes although its rows are padded."""

SPILLED = {
    "attention": {("attend_rows", "4 x 47 padded"), ("attend_rows", "one edge")},
    "attention backward": {("target_gradients", "one edge")},
    "dynamic": {("attend_rows", "one edge")},
    "wide": {("sum_rows", "41")},
    "rare": {("attend_rows", "attention, 1 x 1 to 2 x 100")},
}
"""The kernels and shapes of each family that spill registers to memory."""

FEW_BYTES = 64
SPILLED_MUCH = {(80, "dense"): {("_outer", "X^T G, masked 602/602 x 128")}}
"""By generation and family, the kernels and shapes that spill more than a few bytes there."""


@pytest.mark.sample(4)
@needs_triton
def test_every_kernel_is_compiled_from_a_call_of_the_host() -> None:
    """The calls of ``launched.py``, which the other tests of this file compile, ask for every kernel."""
    texts = {path: path.read_text() for path in sorted(ROOT.rglob("*.py"))}
    there = entry_points({name_of(path): text for path, text in texts.items() if "triton.jit" in text})
    assert len(there) > 20, "the kernels are not found"
    assert there == set(output_of("tests.gpu_code.launched", "--asked").split())


def name_of(path: Any) -> str:
    return ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)


def entry_points(texts: Mapping[str, str]) -> set[str]:
    """The full names of the kernels in some modules that no other kernel calls, so that the host launches them."""
    defined = {module: {kernel.name for kernel in kernels(text)} for module, text in texts.items()}
    called = set[str]()
    for module, text in texts.items():
        owners = {
            alias.name: node.module
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        } | dict.fromkeys(defined[module], module)
        for kernel in kernels(text):
            names = {node.id for node in ast.walk(kernel) if isinstance(node, ast.Name)}
            called |= {f"{owners[name]}.{name}" for name in names & owners.keys()}
    return {f"{module}.{name}" for module, names in defined.items() for name in names} - called


def test_what_kernels_call_is_not_launched() -> None:
    first = "@triton.jit\ndef helper(x):\n    pass\n@triton.jit\ndef _add(x):\n    helper(x)\n"
    second = "from one import helper\n@triton.jit\ndef launched(x):\n    _add(x)\n@triton.jit\ndef _add(x):\n    pass\n"
    assert entry_points({"one": first, "other": second}) == {"one._add", "other.launched"}


@needs_triton
@pytest.mark.timeout(300)
@pytest.mark.sample(12)
@pytest.mark.parametrize("family", FAMILIES)
def test_accesses_of_what_the_host_launches(family: str) -> None:
    """No access is wider than the alignment of the rows, or the GPU would stop; and rows that are padded are read 16
    bytes at a time, without spilling a register. A kernel that has been mended must leave ``NARROW`` or ``SPILLED``."""
    lines = launched(family, 90)
    assert not [*misaligned(lines)]
    names, shapes = {kernel_of(line) for line in lines}, {line["shape"] for line in lines}
    still = {(*key, shape) for key, some in NARROW.items() if key[0] in names for shape in some if shape in shapes}
    assert {*narrow(lines)} == still
    assert spilled(lines) == SPILLED.get(family, set())


@needs_triton
@pytest.mark.timeout(300)
@pytest.mark.sample(18)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("generation", [other for other in GENERATIONS if other != 90])
def test_other_generations_of_gpus_have_the_same_accesses(generation: int, family: str) -> None:
    """For a third of the calls."""
    lines = launched(family, generation)
    there = {(kernel_of(line), line["shape"]) for line in lines}
    assert not [*misaligned(lines)]
    assert {*narrow(lines)} == {access for access in narrow(launched(family, 90)) if (access[0], access[2]) in there}
    much = spilled(line for line in lines if line["stack_bytes"] > FEW_BYTES)
    assert much == SPILLED_MUCH.get((generation, family), set())


@needs_triton
@pytest.mark.sample(3)
@pytest.mark.parametrize("generation", GENERATIONS)
def test_panels_are_multiplied_by_tensor_cores(generation: int) -> None:
    """Each of them uses instructions of the tensor cores of its generation."""
    known = {80: {"mma.sync"}, 90: {"mma.sync", "wgmma.mma_async"}, 100: {"mma.sync", "tcgen05.mma"}}[generation]
    used = [{*line["tensor_cores"]} for line in panels(generation)]
    assert used and all(some and some <= known for some in used)


@needs_triton
@pytest.mark.sample(1)
def test_panels_leave_room_for_three_programs_on_a_multiprocessor() -> None:
    assert min(line["ctas"] for line in panels(90)) >= 3


@functools.cache
def launched(family: str, generation: int) -> list[dict[str, Any]]:
    """What ``launched.py`` says of each kernel that the calls of ``family`` compile; or a third of the calls, where
    another generation than the usual one is compiled for."""
    every = ["--every", "1" if generation == 90 else "3"]
    options = ["--generation", str(generation), *every, family]
    text = output_of("tests.gpu_code.launched", *options, generation=generation)
    lines = [json.loads(line) for line in text.splitlines()]
    assert lines, "the family asks for no kernel"
    return lines


def panels(generation: int) -> list[dict[str, Any]]:
    lines = [*launched("packed", generation), *launched("tile32", generation)]
    return [line for line in lines if kernel_of(line) == "multiply_planes"]


def kernel_of(line: dict[str, Any]) -> str:
    return line["kernel"].rpartition(".")[2]


def misaligned(lines: Iterable[dict[str, Any]]) -> Iterator[str]:
    for line in lines:
        for name, x in line["matrices"].items():
            if max((*x["loads"], *x["stores"]), default=0) > x["alignment"]:
                yield f"{line['kernel']}, {line['shape']}: {name} {x}"


def narrow(lines: Iterable[dict[str, Any]]) -> Iterator[tuple[str, str, str]]:
    """Kernel, matrix and shape where padded rows of a tall matrix are read less than 16 bytes at a time."""
    for line in lines:
        for name, x in line["matrices"].items():
            padded = x["alignment"] == 16 and x["num_rows"] > 1 and x["row_bytes"] > 16
            if name in TALL and padded and min(x["loads"], default=16) < 16:
                yield kernel_of(line), name, line["shape"]


def spilled(lines: Iterable[dict[str, Any]]) -> set[tuple[str, str]]:
    return {(kernel_of(line), line["shape"]) for line in lines if line["stack_bytes"]}


def test_what_is_wrong_is_found() -> None:
    x = {"alignment": 16, "num_rows": 50, "row_bytes": 164, "loads": [4, 16], "stores": []}
    line = {"kernel": "fullgnn.kernels._gpu.add", "shape": "41", "stack_bytes": 8, "matrices": {"x": x, "out": x}}
    assert {*narrow([line])} == {("add", "x", "41")} and spilled([line]) == {("add", "41")}
    assert not [*misaligned([line])]
    for change in ({"alignment": 8}, {"alignment": 4, "loads": [4], "stores": [8]}):
        wrong = [*misaligned([line | {"matrices": {"x": x | change}}])]
        assert len(wrong) == 1 and "add, 41: x" in wrong[0]
    for change in ({"loads": [16]}, {"alignment": 4}, {"num_rows": 1}, {"row_bytes": 8}):
        assert not [*narrow([line | {"matrices": {"x": x | change}}])]
