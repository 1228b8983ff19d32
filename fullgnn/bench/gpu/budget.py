"""Budgets of time: what does not fit is left out, so that a run ends on time."""

import time
from collections.abc import Callable


class Budget:
    """Seconds that something may take, from now on. It may be sent to another process of this machine, whose clock is the
    same."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic):
        self.seconds, self._clock = seconds, clock
        self._begin = clock()

    @property
    def elapsed(self) -> float:
        return self._clock() - self._begin

    @property
    def left(self) -> float:
        return max(0.0, self.seconds - self.elapsed)

    def allows(self, predicted_s: float) -> bool:
        return predicted_s <= self.left

    def part(self, share: float, reserved_s: float = 0.0, most_s: float = float("inf")) -> "Budget":
        """The budget of a step: a share of what is left beyond ``reserved_s``, at most ``most_s``."""
        return Budget(min(most_s, share * max(0.0, self.left - reserved_s)), self._clock)
