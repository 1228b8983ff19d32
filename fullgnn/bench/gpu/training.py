"""What is trained, the same for every preset: a two-layer GCN, Adam, the same weights on the same graph."""

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fullgnn.bench.gpu.lookalikes import Lookalike, Nodes
from fullgnn.bench.gpu.random_graph import CSR

LEARNING_RATE = 0.01

Step = Callable[[], Callable[[], float]]
"""Launches one epoch; what it returns reads the loss before the update, and waits for it."""

Settings = Callable[[], dict[str, Any]]
"""What a preset turned out to do, asked for after its epochs."""

Start = Callable[[float], tuple[Step, Settings]]
"""Given the rate of dropout on the hidden layer, a new training from the first weights."""


@dataclass(frozen=True, eq=False)
class Training:
    """A graph with its nodes, and the sizes of the model."""

    csr: CSR  # of A + I
    nodes: Nodes
    num_classes: int
    hidden: int
    cache_dir: str | None = None  # where a kernel that was found to be fastest is remembered

    @property
    def device(self) -> torch.device:
        return self.csr.indptr.device

    def weights(self) -> list[Tensor]:
        """(in, out) of the two layers, on the device; biases start at 0."""
        generator = torch.Generator().manual_seed(0)
        widths = [self.nodes.features.shape[1], self.hidden, self.num_classes]
        drawn = [torch.randn(a, b, generator=generator) * (2 / (a + b)) ** 0.5 for a, b in zip(widths, widths[1:])]
        return [weight.to(self.device) for weight in drawn]

    def scale(self) -> Tensor:
        """(num_nodes,) float32 d^-1/2."""
        return self.csr.indptr.diff().double().rsqrt().float()

    def normalized(self) -> Tensor:
        """(nnz,) float32 entries of D^-1/2 (A + I) D^-1/2."""
        degree, scale = self.csr.indptr.diff().long(), self.csr.indptr.diff().double().rsqrt()
        values = torch.repeat_interleave(scale, degree, output_size=self.csr.nnz)
        return values.mul_(scale[self.csr.indices]).float()


def as_training(csr: CSR, nodes: Nodes, shape: Lookalike, cache_dir: str | None = None) -> Training:
    """The training that belongs to a look-alike."""
    return Training(csr, nodes, shape.num_classes, shape.hidden, cache_dir)


def start_memory(device: torch.device) -> int:
    """Bytes of tensors that are there; the peak is counted from now on. 0 on a CPU, which does not count."""
    if device.type != "cuda":
        return 0
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)


def peak_memory(device: torch.device) -> int | None:
    """Most bytes of tensors since ``start_memory``; None on a CPU."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
