"""On a GPU, the kernel that is fastest for the block and the width at hand.

Which one that is depends on the block, its order and the width, so before the first product of a block by a matrix of
a new width every candidate makes that product a few times, and the fastest stays. torch's own (cuSPARSE) is among them:
the choice is never slower. It is kept with the prepared data (``runtime.cache_dir``), and said in one line.
"""

import logging
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fullgnn.cache import Cache
from fullgnn.kernels.base import NOTHING, Epilogue, Kernel, LocalCSR
from fullgnn.kernels.packed import PANEL_ROWS, Packed
from fullgnn.kernels.persistent import PersistentCSR
from fullgnn.kernels.tile32 import Tile32
from fullgnn.kernels.torch_csr import TorchCSR
from fullgnn.kernels.triton_csr import TritonCSR

log = logging.getLogger(__name__)

ROUNDS = 5  # of every candidate, after one to warm up
FEW_EDGES = 1 << 16  # of a block: below, a product is little more than its launch, and compiling others is not worth it
SOME_EDGES = 1 << 20  # below, neither are kernels for tensor cores


def candidates(adj: LocalCSR, dtype: torch.dtype) -> list[Kernel]:
    """The kernels of float32 quality to choose from for a block. Tensor cores take neither weights nor float64."""
    kernels: list[Kernel] = [TorchCSR()]
    if adj.nnz >= FEW_EDGES:
        kernels += [TritonCSR(), PersistentCSR()]
    if adj.nnz >= SOME_EDGES and adj.values is None and dtype == torch.float32:
        kernels += [Tile32(), *(Packed(rows) for rows in PANEL_ROWS)]
    return kernels


class Fastest:
    """See the head of this file."""

    def __init__(self) -> None:
        self.cache = Cache(None)  # of the choices
        self._widths: dict[str, set[int]] = {}  # multiplied so far, by kernel

    def prepare(self, adj: LocalCSR, dtype: torch.dtype) -> "Choices":
        return Choices(adj, dtype)

    def spmm(self, block: "Choices", x: Tensor, out: Tensor, accumulate: bool, epilogue: Epilogue = NOTHING) -> None:
        width = out.shape[1]
        if not out.numel():
            return
        if width not in block.chosen:
            block.chosen[width] = self._remembered(block, x, out)
            block.keep_chosen()
            self._widths.setdefault(block.chosen[width], set()).add(width)
        kernel, prepared = block.made(block.chosen[width])
        kernel.spmm(prepared, x, out, accumulate, epilogue)

    def tensors(self, block: "Choices") -> list[Tensor]:
        return block.tensors()

    def name_for(self, device: torch.device, dtype: torch.dtype) -> str:
        """What has multiplied, and which widths; "auto" before the first product."""
        used = [f"{name} ({', '.join(map(str, sorted(widths)))})" for name, widths in sorted(self._widths.items())]
        return "; ".join(used) or "auto"

    def _remembered(self, block: "Choices", x: Tensor, out: Tensor) -> str:
        """The kernel that was fastest for the same block and width on such a GPU before; else the one that is now."""
        if len(block.kernels) == 1:
            return next(iter(block.kernels))
        key = self.cache.key(**block.identity(out.shape[1])) if self.cache.folder else ""
        stored = self.cache.load("kernel", key)
        name = str(stored["name"]) if stored else ""
        if name in block.kernels:
            log.info("kernel=auto: %s, as found before: %s", block.describe(out.shape[1]), name)
            return name
        name = block.measure(x, out)
        self.cache.store("kernel", key, {"name": np.array(name)})
        return name


@dataclass(eq=False)
class Choices:
    """One block, as the kernels that were fastest want it."""

    adj: LocalCSR
    dtype: torch.dtype
    chosen: dict[int, str] = field(default_factory=dict)  # kernel by width

    def __post_init__(self) -> None:
        device = self.adj.indices.device
        self.kernels = {kernel.name_for(device, self.dtype): kernel for kernel in candidates(self.adj, self.dtype)}
        self._prepared: dict[str, Any] = {}

    def made(self, name: str) -> tuple[Kernel, Any]:
        """A kernel, and the block as it wants it."""
        if name not in self._prepared:
            self._prepared[name] = self.kernels[name].prepare(self.adj, self.dtype)
        return self.kernels[name], self._prepared[name]

    def measure(self, x: Tensor, out: Tensor) -> str:
        """Time every candidate; ``out`` is not written."""
        found: dict[str, float] = {}
        scratch = torch.empty_like(out)
        for name in self.kernels:
            try:
                kernel, prepared = self.made(name)
                found[name] = time_ms(lambda: kernel.spmm(prepared, x, scratch, False))  # noqa: B023
            except Exception as error:  # it may want more memory than there is, and the others can do without it
                log.warning("kernel=auto: %s is left out (%s)", name, " ".join(str(error).split())[:200])
            self.keep_chosen()
        if not found:
            raise RuntimeError("no kernel could multiply a block; the warnings above say why")
        best = min(found, key=lambda name: found[name])
        others = ", ".join(f"{name} {ms:.2f}" for name, ms in sorted(found.items(), key=lambda item: item[1])[1:])
        log.info("kernel=auto: %s: %s %.2f ms (%s)", self.describe(out.shape[1]), best, found[best], others)
        return best

    def keep_chosen(self) -> None:
        """Free what was made for the kernels that lost."""
        self._prepared = {name: block for name, block in self._prepared.items() if name in self.chosen.values()}

    def describe(self, width: int) -> str:
        adj = self.adj
        return f"{width} columns of a {adj.num_rows} x {adj.num_cols} block with {adj.nnz} non-zeros"

    def identity(self, width: int) -> dict[str, Any]:
        """What the choice depends on, for the cache: a checksum stands for the block."""
        adj = self.adj
        device = adj.indices.device
        checksums = []
        for tensor in (adj.indptr, adj.indices):
            place = torch.arange(len(tensor), device=device) % 65_521 + 1
            checksums.append(int((tensor.long() * place).sum()))
        gpu_name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
        return {
            "shape": [adj.num_rows, adj.num_cols, adj.nnz],
            "checksums": checksums,
            "weighted": adj.values is not None,
            "dtype": str(self.dtype),
            "width": width,
            "device": gpu_name,
            "torch": torch.__version__,
            "candidates": sorted(self.kernels),
        }

    def tensors(self) -> list[Tensor]:
        adj = self.adj
        held = [adj.indptr, adj.indices, *([] if adj.values is None else [adj.values])]
        return held + [tensor for name, block in self._prepared.items() for tensor in self.kernels[name].tensors(block)]


def time_ms(run: Callable[[], None]) -> float:
    """Median time of ``run`` on the GPU, warm."""
    run()
    times = []
    for _ in range(ROUNDS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)
