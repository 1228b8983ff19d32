"""The sparse kernels that are tested and timed, by name."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from fullgnn.errors import FullGNNError, message_of
from fullgnn.kernels.spmm import Kernel, LocalCSR, Packed, Tile32, TorchCSR, TritonCSR

FLOAT32 = 1e-6
"""Error of a sum at float32 quality, over the sum of the magnitudes of its addends."""


@dataclass(frozen=True)
class Contestant:
    """One kernel in one way of multiplying."""

    name: str  # as ``Kernel.name_for`` gives it
    make: Callable[[], Kernel]
    rounding: float = 0.0  # the largest relative error of a number as it is multiplied

    @property
    def tolerance(self) -> float:
        """Largest error allowed of an element of the product, over the sum of the magnitudes of its addends."""
        return FLOAT32 + self.rounding

    def missing(self, device: torch.device) -> str | None:
        """Why this kernel does not multiply on ``device``; None where it does."""
        indptr, indices = (torch.tensor(ids, dtype=torch.int32, device=device) for ids in ([0, 1], [0]))
        try:
            self.make().prepare(LocalCSR(indptr, indices, None, 1, 1), torch.float32)
        except FullGNNError as error:
            return message_of(error)
        return None


BASELINE, CSR = Contestant("torch", TorchCSR), Contestant("csr", TritonCSR)
TILE32, PACKED = Contestant("tile32", Tile32), Contestant("packed", Packed)

FIRST = [BASELINE, CSR, TILE32, PACKED]
"""Those of float32 quality: timed at every width, before the other one."""

ROUNDED = Contestant("csr bf16", partial(TritonCSR, "bf16"), 2.0**-8)
"""``csr`` that is not exact: a number of 8 significant bits leaves half a unit of its last bit."""

CONTESTANTS = {contestant.name: contestant for contestant in (*FIRST, ROUNDED)}
