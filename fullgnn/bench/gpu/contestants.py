"""The kernels that are checked and timed, by name; each is imported when it is its turn, so one may be missing."""

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import torch

from fullgnn.errors import FullGNNError
from fullgnn.kernels import Kernel, LocalCSR

MODES = ("bf16x2", "bf16", "ieee")
TOLERANCE = {"ieee": 2e-5, "bf16x2": 2e-4, "bf16": 2e-2}
"""Largest error allowed, over the largest entry of the result: that of the numbers that a mode multiplies, with what
the order of a float32 sum adds to it."""


@dataclass(frozen=True)
class Contestant:
    """One kernel in one way of multiplying."""

    kernel: str  # as conf/kernel names it, with the panel
    mode: str
    kind: str  # a class of fullgnn.kernels
    arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.kernel} {self.mode}"

    @property
    def tolerance(self) -> float:
        return TOLERANCE[self.mode]

    def missing(self, device: torch.device) -> str | None:
        """Why no such kernel multiplies on ``device``; None where one does."""
        indptr, indices = (torch.tensor(ids, dtype=torch.int32, device=device) for ids in ([0, 1], [0]))
        try:
            self.make().prepare(LocalCSR(indptr, indices, None, 1, 1), torch.float32)
        except (AttributeError, FullGNNError) as error:
            return str(error)
        return None

    def make(self) -> Kernel:
        """The kernel.

        Raises:
            AttributeError: there is none of that name.
        """
        return getattr(import_module("fullgnn.kernels"), self.kind)(**self.arguments)


BASELINE = Contestant("torch", "ieee", "TorchCSR")
_CSR = [Contestant("csr", mode, "TritonCSR", {"mode": mode}) for mode in ("ieee", "bf16")]
_TILES = [Contestant("tile32", mode, "Tile32", {"mode": mode}) for mode in MODES]
_PACKED = [
    Contestant(f"packed{rows}", mode, "Packed", {"panel_rows": rows, "mode": mode})
    for mode in MODES
    for rows in (64, 32, 128)
]
AUTO = Contestant("auto", "bf16x2", "AutoKernel")

CONTESTANTS = {one.name: one for one in (BASELINE, *_CSR, *_TILES, *_PACKED, AUTO)}
FIRST = [BASELINE, _CSR[0], _TILES[0], _PACKED[0]]
"""One of each kind: timed before the others, which are variants of them."""

VARIANTS = [one for one in (*_PACKED, *_TILES, *_CSR) if one not in FIRST]
