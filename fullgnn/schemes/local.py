"""The rows of a block that one process has alone: nothing moves."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class LocalExchange:
    """``RowExchange`` of a block whose sources and targets all lie in this process, in one stage."""

    num_sources: int
    num_targets: int

    num_steps = 1
    joins_targets = False
    has_copies = False

    @property
    def own(self) -> slice:
        return slice(0, self.num_targets)

    @property
    def num_rows(self) -> list[int]:
        return [self.num_sources]

    def arrivals(self, x: Tensor) -> Iterator[Tensor | None]:
        yield x

    def push(self, width: int, like: Tensor) -> "_LocalPush":
        return _LocalPush()

    def gather_targets(self, own: Tensor) -> Tensor:
        return own

    def reduce(self, partial: Tensor) -> Tensor:
        return partial

    def maximum(self, partial: Tensor) -> Tensor:
        return partial

    def sum_partial(self, tensor: Tensor) -> Tensor:
        return tensor

    def computing(self) -> AbstractContextManager[None]:
        return nullcontext()


class OneRank:
    """``JoinsRows`` of a process that has all rows."""

    def sum_over_rows(self, tensor: Tensor) -> Tensor:
        return tensor

    def gather_partial(self, tensor: Tensor) -> Tensor:
        return tensor[None]


ONE_RANK = OneRank()


class _LocalPush:
    def step(self, gradient: Tensor | None) -> None:
        assert gradient is not None
        self._gradient = gradient

    def finish(self) -> Tensor:
        return self._gradient
