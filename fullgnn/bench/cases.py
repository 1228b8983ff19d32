"""The cases of an operation that runs them one after the other, as far as its time goes."""

import math
import signal
import time
from collections.abc import Callable
from typing import Any

import torch

from fullgnn.bench.harness import Missing, Outcome, attempt


class Budget:
    """Seconds that something may take, from now on: what does not fit is left out, so that a run ends on time."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic):
        self.seconds, self._clock = seconds, clock
        self._begin = clock()

    @property
    def elapsed(self) -> float:
        return self._clock() - self._begin

    @property
    def left(self) -> float:
        return max(0.0, self.seconds - self.elapsed)

    def part(self, share: float, reserved_s: float = 0.0, most_s: float = float("inf")) -> float:
        """Seconds of a step: a share of what is left beyond ``reserved_s``, at most ``most_s``."""
        return min(most_s, share * max(0.0, self.left - reserved_s))


class Cases:
    """Runs cases; one that raises an error costs itself alone, one that hangs or faults this process.

    Args:
        limit_s: seconds for all of them.
    """

    def __init__(self, limit_s: float, device: torch.device):
        self.budget, self._device = Budget(limit_s), device

    def run(
        self, name: str, make: Callable[[], Any], case: dict[str, Any], predicted_s: float = 1.0, limit_s: float = 60.0
    ) -> Outcome:
        """What ``make`` returns, an outcome or one of its measurements; or the reason why there is none: it raised an
        error, or the time that is left is too short.

        Args:
            predicted_s: what it will take at least.
            limit_s: time after which SIGALRM ends this process.
        """
        if predicted_s > self.budget.left:
            return Outcome(missing=[Missing(name, f"left out: {self.budget.left:.0f} s are left", case)])
        signal.alarm(math.ceil(limit_s))
        try:
            made, _, reason = attempt(make)
            if reason and self._device.type == "cuda":
                torch.cuda.empty_cache()
                torch.cuda.synchronize()  # raises, and so ends this process, if the GPU can no longer be used
        finally:
            signal.alarm(0)
        if reason:
            return Outcome(missing=[Missing(name, reason, case)])
        return made if isinstance(made, Outcome) else Outcome([made])
