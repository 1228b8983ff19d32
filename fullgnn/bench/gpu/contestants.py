"""The kernels that are checked and timed, by name; each is imported when it is its turn, so one may be missing."""

from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import torch

from fullgnn.errors import FullGNNError
from fullgnn.kernels.spmm import Kernel, LocalCSR
from fullgnn.kernels.support import gpu

FLOAT32 = 1e-6
"""Error of a sum at float32 quality, over the sum of the magnitudes of its addends."""

ROUNDING = {"ieee": 0.0, "bf16x3": 0.0, "bf16x2": 2.0**-17, "bf16": 2.0**-8}
"""By mode, the largest relative error of a number as it is multiplied. bf16x3 is an exact split of float32; two numbers
of 8 significant bits leave half a unit of the 17th bit, one leaves half a unit of its own last bit."""

PANEL_ROWS = (64, 32, 128)


@dataclass(frozen=True)
class Contestant:
    """One kernel in one way of multiplying."""

    kernel: str  # as conf/kernel names it, with the panel
    mode: str
    kind: str  # a class of fullgnn.kernels
    arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.kernel} {self.mode}" + (" planes" if self.arguments.get("planes") else "")

    @property
    def is_float32(self) -> bool:
        """Whether its products are of float32 quality."""
        return ROUNDING[self.mode] == 0

    @property
    def tolerance(self) -> float:
        """Largest error allowed of an element of the product, over the sum of the magnitudes of its addends."""
        # Triton's interpreter cuts a float32 to bfloat16 where a GPU rounds it: two bits of two numbers.
        return FLOAT32 + ROUNDING[self.mode] * (4 if gpu.interpreting() else 1)

    def missing(self, device: torch.device) -> str | None:
        """Why no such kernel multiplies on ``device``; None where one does."""
        indptr, indices = (torch.tensor(ids, dtype=torch.int32, device=device) for ids in ([0, 1], [0]))
        try:
            self.make().prepare(LocalCSR(indptr, indices, None, 1, 1), torch.float32)
        except (AttributeError, TypeError, FullGNNError) as error:
            return " ".join(str(error).split())
        return None

    def make(self) -> Kernel:
        """The kernel.

        Raises:
            AttributeError, TypeError, FullGNNError: there is none of that name, or none with these arguments.
        """
        return getattr(import_module("fullgnn.kernels.spmm"), self.kind)(**self.arguments)


def _tile32(mode: str, **options: Any) -> Contestant:
    return Contestant("tile32", mode, "Tile32", {"mode": mode, **options})


def _packed(rows: int, mode: str, **options: Any) -> Contestant:
    return Contestant(f"packed{rows}", mode, "Packed", {"panel_rows": rows, "mode": mode, **options})


def _panels(mode: str) -> list[Contestant]:
    return [_tile32(mode), *(_packed(rows, mode) for rows in PANEL_ROWS)]


BASELINE = Contestant("torch", "ieee", "TorchCSR")
CSR = Contestant("csr", "ieee", "TritonCSR", {"mode": "ieee"})
PERSISTENT = Contestant("persistent", "ieee", "PersistentCSR")
TILE32, PACKED = _tile32("bf16x3"), _packed(64, "bf16x3")
PACKED_PLANES = _packed(64, "bf16x3", planes=True)
AUTO = Contestant("auto", "bf16x3", "AutoKernel")

_PLANES = [_tile32("bf16x3", planes=True), *(_packed(rows, "bf16x3", planes=True) for rows in PANEL_ROWS)]
_EXACT = [BASELINE, CSR, PERSISTENT, TILE32, *(_packed(rows, "bf16x3") for rows in PANEL_ROWS), *_PLANES, AUTO]
_ROUNDED, _IEEE = [*_panels("bf16x2"), *_panels("bf16")], _panels("ieee")

CONTESTANTS = {
    one.name: one for one in (*_EXACT, *_ROUNDED, Contestant("csr", "bf16", "TritonCSR", {"mode": "bf16"}), *_IEEE)
}
"""Those of float32 quality that ``auto`` may choose come first, the most precise way of the slow ones last."""

FIRST = [BASELINE, CSR, PERSISTENT, TILE32, PACKED, PACKED_PLANES]
"""One of each kind: timed at every width, before the others, which are variants of them."""

_TOY_VARIANTS = ["packed32 bf16x2", "packed128 bf16", "csr bf16", "tile32 ieee"]
TOYS = [*FIRST, *(CONTESTANTS[name] for name in _TOY_VARIANTS)]
"""What a toy run checks: every kind of kernel, and every mode of one."""

VARIANTS = [one for one in CONTESTANTS.values() if one not in FIRST and one != AUTO and one.mode != "ieee"]
