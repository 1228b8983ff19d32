"""kernel=auto on a GPU: autotunes the kernel for each block and width.

The fastest kernel depends on the block, its order and the width. So before the first product of a block by a matrix of
a new width, three candidates compute that product a few times, with its epilogue and accumulation, and the fastest one
is chosen: torch's own kernel (cuSPARSE), so that the choice is never slower than torch, ``csr``, and ``packed``. The
choice is logged and stored in ``runtime.cache_dir``. Ten products in a CUDA graph are timed, without the host's
launches.

A compiler may translate a kernel wrongly. So the product of each candidate is compared with that of torch's kernel for
the same call, and a candidate whose product differs is disabled with a warning.

A block stays in the formats of the kernels that were chosen for some width. The other formats are freed; where a new
width is met, they are made again, which takes tens of milliseconds.

Of two kernels that are about equally fast, two runs or two ranks may choose different ones, whose sums differ in the
last bits; ``runtime.deterministic`` uses the fixed rule of ``fixed_choice.py`` instead.
"""

import logging
import math
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fullgnn.kernels.spmm.base import NO_EPILOGUE, BlockKernel, Epilogue, Kernel, LocalCSR, Prepared
from fullgnn.kernels.spmm.fixed_choice import TENSOR_CORES, fixed_choice
from fullgnn.kernels.spmm.packed import Packed
from fullgnn.kernels.spmm.torch_csr import TorchCSR
from fullgnn.kernels.spmm.triton_csr import TritonCSR
from fullgnn.kernels.support import gpu
from fullgnn.kernels.support.cuda_graph import CudaGraph
from fullgnn.kernels.support.rehearsal import rehearsing
from fullgnn.kernels.support.trials import trial
from fullgnn.storage.cache import Cache
from fullgnn.telemetry.timing import Times, device_ms

log = logging.getLogger(__name__)

ROUNDS = 5  # timed replays of every candidate's products, after one to warm up
PRODUCTS = 10  # products in one replay
TOLERANCE = 1e-4  # relative; float32 sums in another order differ by less than 1e-5, and wrong rows by far more
CHUNK_ELEMENTS = 1 << 22  # elements that are compared at a time in float64, or added to a checksum in int64
FEW_EDGES = 1 << 16  # in smaller blocks, a product is little more than its launch: only torch's kernel is worthwhile
SOME_EDGES = 1 << 20  # in smaller blocks, a kernel for tensor cores is not worth compiling


def candidates(adj: LocalCSR, dtype: torch.dtype) -> list[Kernel]:
    """The candidates for a block, all of float32 quality; the first is torch's, with which the others are compared.

    Tensor cores support neither weights nor float64.
    """
    kernels: list[Kernel] = [TorchCSR()]
    if adj.nnz >= FEW_EDGES:
        kernels.append(TritonCSR())
    if adj.nnz >= SOME_EDGES and adj.values is None and dtype == torch.float32:
        kernels.append(Packed())
    return kernels


@dataclass(frozen=True, eq=False)
class Call:
    """The arguments of ``Kernel.spmm`` for one product."""

    x: Tensor
    out: Tensor
    accumulate: bool
    epilogue: Epilogue

    @property
    def width(self) -> int:
        return self.out.shape[1]

    def by(self, block: Prepared) -> None:
        block.multiply(self.x, self.out, self.accumulate, self.epilogue)

    def elsewhere(self) -> "Call":
        """The same product with a copy of ``out``, so that ``out`` is not written."""
        scratch = torch.empty_strided(self.out.shape, self.out.stride(), dtype=self.out.dtype, device=self.out.device)
        return Call(self.x, scratch.copy_(self.out), self.accumulate, self.epilogue)


class Autotune(BlockKernel):
    """The kernel that multiplies each block by its fastest candidate; see the head of this file.

    Args:
        cache: stores the choices.
        deterministic: whether the rule of ``fixed_choice.py`` chooses.
    """

    def __init__(self, cache: Cache, deterministic: bool):
        self.cache, self.deterministic = cache, deterministic
        self._widths: dict[str, set[int]] = {}  # widths multiplied so far, by kernel

    def prepare(self, adj: LocalCSR, dtype: torch.dtype) -> "Choices":
        return Choices(adj, dtype, [] if self.deterministic else candidates(adj, dtype))

    def spmm(
        self, block: "Choices", x: Tensor, out: Tensor, accumulate: bool, epilogue: Epilogue = NO_EPILOGUE
    ) -> None:
        if not out.numel():
            return
        call = Call(x, out, accumulate, epilogue)
        if call.width not in block.chosen and rehearsing() and not self.deterministic:
            block.rehearse(call, self._to_rehearse(block, call.width))
            return
        if call.width not in block.chosen:
            with trial():
                fixed = self.deterministic
                block.chosen[call.width] = block.fixed(call.width) if fixed else self._remembered(block, call)
            self._widths.setdefault(block.chosen[call.width], set()).add(call.width)
        call.by(block.made(block.chosen[call.width]))

    def name_for(self, device: torch.device, dtype: torch.dtype) -> str:
        """The kernels chosen so far with their widths; "auto" before the first product."""
        used = [f"{name} ({', '.join(map(str, sorted(widths)))})" for name, widths in sorted(self._widths.items())]
        return "; ".join(used) or "auto"

    def _remembered(self, block: "Choices", call: Call) -> str:
        """The cached choice for the same block, width and GPU; without one, the fastest kernel by measurement."""
        if len(block.kernels) == 1:
            return next(iter(block.kernels))
        key = self._key(block, call.width)
        name = self._stored(block, key)
        if name is not None:
            log.info("kernel=auto: %s, choice from the cache: %s", block.describe(call.width), name)
            return name
        name = block.measure(call)
        self.cache.store("kernel", key, {"name": np.array(name)})
        return name

    def _to_rehearse(self, block: "Choices", width: int) -> Collection[str]:
        """The candidates that ``_remembered`` measures, or the one that it finds in the cache."""
        stored = self._stored(block, self._key(block, width)) if len(block.kernels) > 1 else None
        return block.kernels if stored is None else [stored]

    def _key(self, block: "Choices", width: int) -> str:
        return self.cache.key(**block.identity(width)) if self.cache.folder else ""

    def _stored(self, block: "Choices", key: str) -> str | None:
        """The choice in the cache, if it is still a candidate."""
        name = self.cache.load("kernel", key, lambda arrays: str(arrays["name"]))
        return name if name in block.kernels else None


class Choices:
    """One block in the formats of the kernels that were chosen, and the kernel that was chosen for each width.

    Args:
        kernels: the candidates to time.
    """

    def __init__(self, adj: LocalCSR, dtype: torch.dtype, kernels: list[Kernel]):
        self.adj, self.dtype = adj, dtype
        self.chosen: dict[int, str] = {}  # kernel by width
        self.kernels = {self._name(kernel): kernel for kernel in kernels}
        self.prepared: dict[str, Prepared] = {}

    def _name(self, kernel: Kernel) -> str:
        return kernel.name_for(self.adj.indices.device, self.dtype)

    def made(self, name: str) -> Prepared:
        """The block in the format of the kernel ``name``."""
        if name not in self.prepared:
            kernel = self.kernels[name]
            self.prepared[name] = Prepared(kernel, kernel.prepare(self.adj, self.dtype))
        return self.prepared[name]

    def fixed(self, width: int) -> str:
        """The name of the kernel that ``fixed_choice`` selects."""
        adj, device = self.adj, self.adj.indices.device
        capability = torch.cuda.get_device_capability(device) if device.type == "cuda" else TENSOR_CORES
        kernel = fixed_choice(
            adj.num_rows, adj.nnz, width, pattern=adj.values is None, dtype=self.dtype, capability=capability
        )
        self.kernels.setdefault(self._name(kernel), kernel)
        return self._name(kernel)

    def rehearse(self, call: Call, names: Collection[str]) -> None:
        """Compile what the products by the candidates ``names`` will launch."""
        for name in names:
            with suppress(Exception):  # the measurement will say why
                self._product(name, call)
            self._free_all_but("")

    def measure(self, call: Call) -> str:
        """The name of the fastest candidate whose product is right; ``call.out`` is not written.

        Right is what torch's kernel computes. Where it could not multiply the block, there is nothing to compare with.
        """
        times_ms: dict[str, float] = {}  # milliseconds of the right ones
        product: Tensor | None = None
        reference: Tensor | None = None
        for name, kernel in self.kernels.items():
            try:
                took_ms, product = self._time(name, call), self._product(name, call)
                if isinstance(kernel, TorchCSR):
                    reference = product
                elif reference is not None and not (off := relative_error(product, reference)) <= TOLERANCE:
                    raise ArithmeticError(f"its product differs from that of torch by {off:.1e}")
                times_ms[name] = took_ms
            except Exception as error:  # such as too little memory; the other candidates remain
                log.warning("kernel=auto: %s is disabled (%s)", name, " ".join(str(error).split())[:200])
            product = None  # its memory is free for the next candidate
            self._free_all_but(min(times_ms, key=times_ms.__getitem__, default=""))
        if not times_ms:
            raise RuntimeError("no kernel could multiply a block; the warnings above say why")
        (best, best_ms), *others = sorted(times_ms.items(), key=lambda item: item[1])
        slower = ", ".join(f"{name} {ms:.2f}" for name, ms in others)
        log.info("kernel=auto: %s: %s %.2f ms (%s)", self.describe(call.width), best, best_ms, slower)
        return best

    def _time(self, name: str, call: Call) -> float:
        block, scratch = self.made(name), call.elsewhere()
        return time_ms(lambda: scratch.by(block))

    def _product(self, name: str, call: Call) -> Tensor:
        """The result of the candidate ``name``."""
        copy = call.elsewhere()
        copy.by(self.made(name))
        return copy.out

    def _free_all_but(self, name: str) -> None:
        """Free the formats of all kernels but ``name`` and those that were chosen for other widths."""
        used = {name, *self.chosen.values()}
        self.prepared = {kept: block for kept, block in self.prepared.items() if kept in used}

    def describe(self, width: int) -> str:
        adj = self.adj
        return f"{width} columns of a {adj.num_rows} x {adj.num_cols} block with {adj.nnz} non-zeros"

    def identity(self, width: int) -> dict[str, Any]:
        """The cache key: everything that the choice depends on, with checksums instead of the block."""
        adj = self.adj
        device = adj.indices.device
        gpu_name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        return {
            "shape": [adj.num_rows, adj.num_cols, adj.nnz],
            "checksums": [checksum(adj.indptr), checksum(adj.indices)],
            "weighted": adj.values is not None,
            "dtype": str(self.dtype),
            "width": width,
            "device": gpu_name,
            "torch": torch.__version__,
            "triton": gpu.triton_version(),
            "candidates": sorted(self.kernels),
            "timed": f"{PRODUCTS} in a CUDA graph, and the product compared",
        }

    def tensors(self) -> list[Tensor]:
        return self.adj.tensors() + [tensor for block in self.prepared.values() for tensor in block.tensors()]


def checksum(numbers: Tensor) -> int:
    """The sum of (num,) int32 ``numbers``, each times a weight of its place. A chunk of them is int64 at a time."""
    total = torch.zeros((), dtype=torch.int64, device=numbers.device)
    for first in range(0, len(numbers), CHUNK_ELEMENTS):
        some = numbers[first : first + CHUNK_ELEMENTS].long()
        total += (some * (torch.arange(first, first + len(some), device=some.device) % 65_521 + 1)).sum()
    return int(total)


def relative_error(product: Tensor, reference: Tensor) -> float:
    """The Frobenius norm of the difference over that of ``reference``, of the elements where ``reference`` is finite.

    Args:
        product, reference: (num_rows, width).
    """
    differences, sizes = product.new_zeros((), dtype=torch.float64), product.new_zeros((), dtype=torch.float64)
    num_rows = max(1, CHUNK_ELEMENTS // product.shape[1])
    for some, expected in zip(product.split(num_rows), reference.split(num_rows)):
        some, expected, finite = some.double(), expected.double(), expected.isfinite()
        differences += torch.where(finite, some - expected, 0).square().sum()
        sizes += torch.where(finite, expected, 0).square().sum()
    difference, size = math.sqrt(differences), math.sqrt(sizes)
    return difference / size if size else math.inf if difference else 0.0


def time_ms(run: Callable[[], None]) -> float:
    """Median milliseconds of one ``run`` on the GPU after a warm-up: a tenth of a CUDA graph of ten runs, so that the
    host's launches are not timed.

    Raises:
        RuntimeError: ``run`` cannot be captured, and then no training step that contains it can be.
    """
    stream, outside, graph = torch.cuda.Stream(), torch.cuda.current_stream(), CudaGraph()

    def ten() -> None:
        for _ in range(PRODUCTS):
            run()

    stream.wait_stream(outside)
    try:
        with torch.cuda.stream(stream):
            run()  # compiles
            graph.capture(ten)
            graph.replay()
            times = Times(device_ms([graph.replay] * ROUNDS, torch.device("cuda")))
    finally:
        graph.reset()
        outside.wait_stream(stream)
    return times.median_ms / PRODUCTS
