"""The products and the work around them that the four models of Miao et al. 2023 ask a GPU for, to be compiled.

A case is a call of a public function on CPU tensors that lie as those of a training run on a GPU do. Which kernels it
compiles is decided by the host's code alone. The matrix has rows of every number of edges from none to 16,384, and a
dense panel of 128 rows over all columns, so that every bin, heavy row and long panel is met.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fullgnn import kernels
from fullgnn.bench.gpu.lookalikes import LOOKALIKES
from fullgnn.kernels.dense import dense
from fullgnn.kernels.dropout.mask import Mask
from fullgnn.kernels.epilogue.apply import apply_epilogue_
from fullgnn.kernels.spmm import Epilogue, Kernel, LocalCSR
from fullgnn.kernels.support.lines import empty_lines, line_stride
from fullgnn.nn import cross_entropy

NUM_COLS = 16_384
DEGREES = (0, 1, 3, 4, 7, 8, 12, 16, 24, 32, 50, 64, 100, 200, 400, 1000, 1500, 2500, 5000, NUM_COLS)
PANEL = slice(128, 256)
NUM_ROWS = 331
DENSE_ROWS = 20_011  # of the tall matrices; like the numbers of nodes, no multiple of 16


@dataclass(frozen=True)
class Case:
    """Calls whose kernels belong together."""

    kernel: str
    shape: str  # the width of X, or the shapes of a dense product
    models: tuple[str, ...]
    make: Callable[[], None]


def models_by_width() -> dict[int, tuple[str, ...]]:
    """The widths of features, hidden layers and classes, and whose they are."""
    found: dict[int, list[str]] = {}
    for name, shape in LOOKALIKES.items():
        for width in dict.fromkeys((shape.num_features, shape.hidden, shape.num_classes)):
            found.setdefault(width, []).append(name.removesuffix("-like"))
    return {width: tuple(found[width]) for width in sorted(found, reverse=True)}


def sparse_kernels() -> dict[str, Kernel]:
    """The kernels of float32 quality that this checkout has, by name."""
    offered: Any = kernels  # an earlier checkout offers less
    made: dict[str, Kernel] = {"csr": offered.TritonCSR()}
    if hasattr(offered, "PersistentCSR"):
        made["persistent"] = offered.PersistentCSR()
    with_planes = "planes" in inspect.signature(offered.Packed).parameters
    for name, options in {"": {}, " planes": {"planes": True}}.items() if with_planes else [("", {})]:
        made[f"tile32{name}"] = offered.Tile32(**options)
        made |= {f"packed {rows}{name}": offered.Packed(rows, **options) for rows in (32, 64, 128)}
    return made


def sparse_cases() -> Iterator[Case]:
    """Every kernel at every width of the models. A kernel prepares the matrix once, when its first case is made."""
    adj = functools.cache(matrix)
    for name, kernel in sparse_kernels().items():
        block = functools.cache(lambda kernel=kernel: kernel.prepare(adj(), torch.float32))  # type: ignore[misc]
        for width, models in models_by_width().items():

            def make(kernel: Kernel = kernel, block: Callable[[], object] = block, width: int = width) -> None:
                _multiply(kernel, block(), width)

            yield Case(name, str(width), models, make)


def matrix() -> LocalCSR:
    """See the head of this file."""
    generator = torch.Generator().manual_seed(0)
    pattern = torch.zeros(NUM_ROWS, NUM_COLS, dtype=torch.bool)
    for row in range(NUM_ROWS):
        degree = DEGREES[row % len(DEGREES)]
        pattern[row, torch.randperm(NUM_COLS, generator=generator)[:degree]] = True
    rows = pattern[PANEL]
    rows |= torch.rand(rows.shape, generator=generator) < 0.1
    counts = torch.zeros(NUM_ROWS + 1, dtype=torch.int32)
    counts[1:] = pattern.sum(1).cumsum(0)
    return LocalCSR(counts, pattern.nonzero()[:, 1].int(), None, NUM_ROWS, NUM_COLS)


def _multiply(kernel: Kernel, block: object, width: int) -> None:
    """A hidden layer's product in its last stage, and a gradient's."""
    like = torch.empty(0)
    x, out = empty_lines(NUM_COLS, width, like=like), torch.empty(NUM_ROWS, width)
    kernel.spmm(block, x, out, True, _everything(NUM_ROWS, width))
    kernel.spmm(block, x, out, False, Epilogue(torch.ones(NUM_ROWS)))


def dense_cases() -> Iterator[Case]:
    """What happens around the sparse products, for the shapes of each model. None of it goes to the CPU's own loop."""
    dense.MIN_WORK = 1 << 62
    shapes: dict[tuple[int, int, int], list[str]] = {}
    for name, one in LOOKALIKES.items():
        shapes.setdefault((one.num_features, one.hidden, one.num_classes), []).append(name.removesuffix("-like"))
    seen: dict[tuple[str, str], Case] = {}
    for (features, hidden, classes), models in shapes.items():
        for case in _dense(features, hidden, classes, tuple(models)):
            known = seen.get((case.kernel, case.shape))
            models_of = case.models if known is None else (*known.models, *case.models)
            seen[case.kernel, case.shape] = Case(case.kernel, case.shape, models_of, case.make)
    yield from seen.values()


def _dense(f: int, h: int, c: int, models: tuple[str, ...]) -> Iterator[Case]:
    """Dense products of a model with ``f`` features, hidden layers of width ``h`` and ``c`` classes."""

    def case(kernel: str, shape: str, call: Callable[[], object]) -> Case:
        def make() -> None:
            call()

        return Case(kernel, shape, models, make)

    def tall(width: int, stride: int = 0) -> Tensor:
        stride = stride or line_stride(torch.device("cpu"), width, torch.float32)
        return torch.zeros(DENSE_ROWS, stride)[:, :width]

    def layer(stride: int) -> Tensor:
        last = replace(_everything(DENSE_ROWS, h), scale=None)
        return dense.matmul(tall(f, stride), torch.zeros(f, h), last)

    ones, labels = torch.ones(DENSE_ROWS), torch.zeros(DENSE_ROWS, dtype=torch.int64)
    for stride in sorted({f, -(-f // 8) * 8}):  # A H0 as it comes, and in rows that begin a sector each
        yield case("act(X W + b)", f"{f}/{stride} x {h}", lambda s=stride: layer(s))  # type: ignore[misc]
        yield case(
            "X^T G, masked",
            f"{f}/{stride} x {h}",
            lambda s=stride: dense.linear_gradients(tall(f, s), tall(h), tall(h), 2.0, keep_masked=False),  # type: ignore[misc]
        )
    for g in (h, c):
        yield case("D X W", f"{h} x {g}", lambda g=g: dense.matmul_lines(tall(h), torch.zeros(h, g), ones))  # type: ignore[misc]
        yield case("X^T G", f"{h} x {g}", lambda g=g: dense.weight_gradient(tall(h), tall(g)))  # type: ignore[misc]
    yield case("mask G", str(h), lambda: dense.activation_gradients(tall(h), tall(h), 2.0, ones))
    yield case("scale G", str(c), lambda: dense.activation_gradients(tall(c, c), None, 1.0, ones))
    yield case("epilogue", str(h), lambda: apply_epilogue_(tall(h), _everything(DENSE_ROWS, h)))
    yield case("cross-entropy", str(c), lambda: cross_entropy(tall(c, c), labels, 1.0))


def _everything(num_rows: int, width: int) -> Epilogue:
    """Scale, bias, ReLU and dropout."""
    mask = Mask(torch.arange(num_rows), 0.5, 1, torch.tensor(1), layer=1)
    return Epilogue(torch.ones(num_rows), torch.ones(width), True, mask)
