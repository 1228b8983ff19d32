"""Models that fail on the last rank while they are trained, to see how a job ends.

python -m fullgnn.train dataset=karate runtime.nproc=2 model._target_=fullgnn.bench.gpu.drill.Raises
"""

import os
import signal
import sys
import time
from typing import Any

from torch import Tensor

from fullgnn.models.gcn import GCN

FAILS_AT = 3
"""The epoch, from 1 on, in which it fails: before epochs are replayed as a CUDA graph, which runs no Python."""

SAYS = "the drill fails at"
"""What it writes before, with the time."""


class Raises(GCN):
    """A GCN that raises a ``RuntimeError`` in the forward pass of epoch ``FAILS_AT``, on the last rank alone."""

    _num_calls = 0

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        self._num_calls += self.training
        if (
            self.training
            and self._num_calls == FAILS_AT
            and int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1
        ):
            print(f"{SAYS} {time.time()}", file=sys.stderr, flush=True)
            self.fail()
        return super().forward(*args, **kwargs)

    def fail(self) -> None:
        raise RuntimeError("the drill has raised this error on the last rank")


class Dies(Raises):
    """The same, but its process is killed, as by a machine that has too little memory."""

    def fail(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)
