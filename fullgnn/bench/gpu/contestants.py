"""The sparse kernels that are tested and timed, by name."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from fullgnn.errors import FullGNNError, message_of
from fullgnn.kernels.spmm import Kernel, LocalCSR, Packed, Tile32, TorchCSR, TritonCSR
from fullgnn.kernels.support import gpu

FLOAT32 = 1e-6
"""Error of a sum at float32 quality, over the sum of the magnitudes of its addends."""

ROUNDING = {"ieee": 0.0, "bf16x3": 0.0, "bf16x2": 2.0**-17, "bf16": 2.0**-8}
"""By mode, the largest relative error of a number as it is multiplied. bf16x3 is an exact split of float32; two numbers
of 8 significant bits leave half a unit of the 17th bit, one leaves half a unit of its own last bit."""


@dataclass(frozen=True)
class Contestant:
    """One kernel in one way of multiplying."""

    kernel: str  # as conf/kernel names it
    mode: str
    make: Callable[[], Kernel]

    @property
    def name(self) -> str:
        return f"{self.kernel} {self.mode}"

    @property
    def tolerance(self) -> float:
        """Largest error allowed of an element of the product, over the sum of the magnitudes of its addends."""
        # Triton's interpreter cuts a float32 to bfloat16 where a GPU rounds it: two bits of two numbers.
        return FLOAT32 + ROUNDING[self.mode] * (4 if gpu.interpreting() else 1)

    def missing(self, device: torch.device) -> str | None:
        """Why this kernel does not multiply on ``device``; None where it does."""
        indptr, indices = (torch.tensor(ids, dtype=torch.int32, device=device) for ids in ([0, 1], [0]))
        try:
            self.make().prepare(LocalCSR(indptr, indices, None, 1, 1), torch.float32)
        except FullGNNError as error:
            return message_of(error)
        return None


def _panels(mode: str) -> list[Contestant]:
    return [Contestant("tile32", mode, partial(Tile32, mode=mode)), Contestant("packed", mode, partial(Packed, mode))]


BASELINE = Contestant("torch", "ieee", TorchCSR)
CSR = Contestant("csr", "ieee", TritonCSR)
TILE32, PACKED = _panels("bf16x3")

FIRST = [BASELINE, CSR, TILE32, PACKED]
"""Those of float32 quality: timed at every width, before the others."""

VARIANTS = [*_panels("bf16x2"), *_panels("bf16"), Contestant("csr", "bf16", partial(TritonCSR, "bf16"))]
"""The modes that are not exact."""

CONTESTANTS = {one.name: one for one in (*FIRST, *VARIANTS)}
