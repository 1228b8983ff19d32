"""The sparse products, and the dense operations around them, of the four models of Miao et al. 2023 on a GPU; scores.

A case is a call of public functions on CPU tensors that are laid out as in training on a GPU; the host's code
alone decides which kernels the call compiles. The matrix has rows of every number of edges from 0 to 16,384, and a
dense panel of 128 rows over all columns, so that every bin of rows, heavy rows and long panels occur.
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from unittest import mock

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from fullgnn.graph.lookalikes import LOOKALIKES, Lookalike
from fullgnn.kernels.dense import dense, sparse_rows
from fullgnn.kernels.dense.sparse_rows import SparseRows
from fullgnn.kernels.dropout.philox import Mask
from fullgnn.kernels.epilogue.epilogue import apply_epilogue_
from fullgnn.kernels.pairs.scores import pair_scores
from fullgnn.kernels.spmm import Epilogue, Kernel, LocalCSR, Packed, Tile32, TritonCSR
from fullgnn.kernels.spmm.single_use import SingleUseTriton
from fullgnn.kernels.support.aligned import aligned_stride, empty_aligned
from fullgnn.nn import cross_entropy
from tests.gpu_code.attention_cases import attention_calls

NUM_COLS = 16_384
DEGREES = (0, 1, 3, 4, 7, 8, 12, 16, 24, 32, 50, 64, 100, 200, 400, 1000, 1500, 2500, 5000, NUM_COLS)
PANEL = slice(128, 256)
NUM_ROWS = 331
UNALIGNED_WIDTHS = (47, 41, 10)  # of the models; rows of so many float32 numbers begin at no sector of a cache line
DENSE_ROWS = 20_011  # rows of the tall matrices; like numbers of nodes, no multiple of 16


@dataclass(frozen=True)
class Case:
    """A call whose kernels belong together."""

    kernel: str
    shape: str  # the width of X, or the shapes of a dense product
    call: Callable[[], object]
    models: list[str] = field(default_factory=list)  # models that make this call


def all_cases() -> list[Case]:
    """``products``, and attention."""
    return [*products(), *(Case(*call) for call in attention_calls())]


def products() -> list[Case]:
    """The sparse products of each kernel, from the widest X to the narrowest, those of sparse features and of sampled
    blocks, the dense operations around them, and scores of pairs of rows."""
    widths: dict[int, list[str]] = {}
    around: dict[tuple[str, str], Case] = {}
    for name, shape in LOOKALIKES.items():
        model = name.removesuffix("-like")
        for width in {shape.num_features, shape.hidden, shape.num_classes}:
            widths.setdefault(width, []).append(model)
        for case in _dense_cases(shape):
            around.setdefault((case.kernel, case.shape), case).models.append(model)
    sparse = (*_sparse_cases(widths), *_feature_cases(widths), *_single_use_cases())
    return [*sparse, *around.values(), *_pair_cases()]


def sparse_kernels() -> dict[str, Kernel]:
    """The kernels of float32 quality, by name."""
    return {"csr": TritonCSR(), "tile32": Tile32(), "packed": Packed()}


def matrix() -> LocalCSR:
    """(NUM_ROWS, NUM_COLS) pattern with the rows that the head of this file describes."""
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


def _sparse_cases(models: dict[int, list[str]]) -> Iterator[Case]:
    """Every kernel at every width. A kernel prepares the matrix once, when its first case is called."""
    adj = functools.cache(matrix)

    kernels = sparse_kernels()

    @functools.cache
    def prepared(name: str) -> object:
        return kernels[name].prepare(adj(), torch.float32)

    def multiply(name: str, width: int) -> None:
        """Multiply as in the last stage of a hidden layer, and as for a gradient."""
        x, out = empty_aligned(NUM_COLS, width, like=torch.empty(0)), torch.empty(NUM_ROWS, width)
        kernels[name].spmm(prepared(name), x, out, True, _every_part(NUM_ROWS, width))
        kernels[name].spmm(prepared(name), x, out, False, Epilogue(torch.ones(NUM_ROWS)))

    for name in kernels:
        for width in sorted(models, reverse=True):
            yield Case(name, str(width), partial(multiply, name, width), models[width])


def _feature_cases(models: dict[int, list[str]]) -> Iterator[Case]:
    """Layers over sparse features, where rows of the weight and of the gradient begin at no sector."""

    @functools.cache
    def features() -> SparseRows:
        block = matrix()
        stored = (np.ones(block.nnz, np.float32), block.indices.numpy(), block.indptr.numpy())
        with mock.patch.object(sparse_rows, "single_use_kernel", lambda device, dtype: TritonCSR()):  # that of a GPU
            return SparseRows.of(csr_array(stored, shape=(NUM_ROWS, NUM_COLS)), torch.float32, torch.device("cpu"))

    def product(width: int) -> Tensor:
        return features().multiply(torch.zeros(NUM_COLS, width))

    def gradient(width: int) -> Tensor:
        return features().multiply_t(torch.zeros(NUM_ROWS, width))

    for name, call in (("sparse X W", product), ("sparse X^T G", gradient)):
        for width in UNALIGNED_WIDTHS:
            yield Case(name, str(width), partial(call, width), models[width])


def _single_use_cases() -> Iterator[Case]:
    """Blocks of sampled batches, at the widths of GraphSAGE on the look-alike of Products."""

    def product(width: int) -> None:
        kernel, block = SingleUseTriton(), matrix()
        x, out = (empty_aligned(rows, width, like=torch.empty(0)) for rows in (NUM_COLS, NUM_ROWS))
        kernel.spmm(kernel.prepare(block, torch.float32), x, out, False)

    for width in (100, 64, 47):
        yield Case("single use", str(width), partial(product, width))


def _dense_cases(model: Lookalike) -> Iterator[Case]:
    """The dense operations around the sparse products of a two-layer model, none of them in the CPU's own loops."""
    dense.MIN_WORK = 1 << 62
    f, h, c = model.num_features, model.hidden, model.num_classes

    def tall(width: int, stride: int = 0) -> Tensor:
        stride = stride or aligned_stride(torch.device("cpu"), width, torch.float32)
        return torch.zeros(DENSE_ROWS, stride)[:, :width]

    def masked_gradients(stride: int) -> object:
        return dense.linear_gradients(tall(f, stride), tall(h), tall(h), 2.0, keep_masked=False)

    def scaled(width: int) -> Tensor:
        return dense.matmul_aligned(tall(h), torch.zeros(h, width), ones)

    def gradient(width: int) -> Tensor:
        return dense.weight_gradient(tall(h), tall(width))

    ones, labels = torch.ones(DENSE_ROWS), torch.zeros(DENSE_ROWS, dtype=torch.int64)
    for stride in sorted({f, -(-f // 8) * 8}):  # A H0 without padding, and with rows padded to 32 bytes
        yield Case("X^T G, masked", f"{f}/{stride} x {h}", partial(masked_gradients, stride))
    for width in (h, c):
        yield Case("D X W", f"{h} x {width}", partial(scaled, width))
        yield Case("X^T G", f"{h} x {width}", partial(gradient, width))
    yield Case("mask G", str(h), lambda: dense.activation_gradients(tall(h), tall(h), 2.0, ones))
    yield Case("scale G", str(c), lambda: dense.activation_gradients(tall(c, c), None, 1.0, ones))
    yield Case("epilogue", str(h), lambda: apply_epilogue_(tall(h), _every_part(DENSE_ROWS, h)))
    yield Case("cross-entropy", str(c), lambda: cross_entropy(tall(c, c), labels, 1.0))


def _pair_cases() -> Iterator[Case]:
    """Scores of pairs of rows, as LightGCN computes them, and of rows that are no whole vectors."""

    def score(width: int) -> Tensor:
        x, index = empty_aligned(DENSE_ROWS, width, like=torch.empty(0)), torch.zeros(DENSE_ROWS, dtype=torch.int64)
        return pair_scores(x, index, None, index)

    for width in (64, 41):
        yield Case("scores", str(width), partial(score, width))


def _every_part(num_rows: int, width: int) -> Epilogue:
    """Scale, bias, ReLU and dropout."""
    mask = Mask(torch.arange(num_rows), 0.5, 1, torch.tensor(1), layer=1)
    return Epilogue(torch.ones(num_rows), torch.ones(width), True, mask)
