"""The peak memory of a run's tensors, without that of trials.

In a trial, ``kernel=auto`` converts a block to several formats, times their kernels, and frees the slower formats; or
a step is rehearsed with a copy of all that it changes. What a trial takes is counted apart.
"""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

_peaks: "weakref.WeakSet[TensorPeak]" = weakref.WeakSet()
_goes_on = False


@contextmanager
def trial() -> Iterator[None]:
    """A context in which memory that is allocated and freed again does not count as the run's. A trial within another
    one is a part of it."""
    global _goes_on
    if _goes_on:
        yield
        return
    peaks, _goes_on = list(_peaks), True
    for peak in peaks:
        peak.begin_trial()
    try:
        yield
    finally:
        _goes_on = False
        for peak in peaks:
            peak.end_trial()


class TensorPeak:
    """Peak bytes of live tensors on ``device``, without the memory that trials use.

    On a GPU this is the allocator's count since this object was created. The CPU allocator keeps no count. There,
    while ``watch`` is active, existing tensors are counted once, and the tensors that operators create are followed
    until they are freed. That costs a Python call for each operator; one epoch and one evaluation are enough, since
    every epoch allocates the same.
    """

    def __init__(self, device: torch.device):
        self._device, self._cuda = device, device.type == "cuda"
        self._most = self._held = 0
        self._ledger: _Ledger | None = None
        self.trial_bytes = 0
        """Peak bytes during a trial, including the run's own tensors."""
        self._start_again()
        _peaks.add(self)

    @property
    def bytes(self) -> int:
        """The peak so far."""
        return max(self._most, self._now())

    @contextmanager
    def watch(self, *existing: torch.Tensor) -> Iterator[None]:
        """On a CPU, follow the operators in the ``with`` block. ``existing`` are tensors of any layout that exist
        before the block. Memory that several tensors share, such as that of one NumPy array, counts once."""
        if self._cuda:
            yield
            return
        self._ledger = _Ledger()
        held = {part.untyped_storage().data_ptr(): part for tensor in existing for part in strided(tensor)}
        for part in held.values():
            self._ledger.add(part)
        try:
            with self._ledger:
                yield
        finally:
            self._most, self._ledger = self.bytes, None

    def hold(self, num_bytes: int) -> None:
        """Add ``num_bytes``, for example the pool of a CUDA graph, to the allocator's count from now on."""
        if num_bytes != self._held:
            self._most = self.bytes
            self._start_again()
            self._held = num_bytes

    def begin_trial(self) -> None:
        """A trial begins: memory that is allocated from now on belongs to the trial."""
        self._most = self.bytes
        self._start_again()

    def end_trial(self) -> None:
        """The trial is over. Memory that it leaves allocated is the run's."""
        self.trial_bytes = max(self.trial_bytes, self._now())
        self._start_again()

    def _now(self) -> int:
        """The peak since ``_start_again``."""
        if self._cuda:
            return torch.cuda.max_memory_allocated(self._device) + self._held
        return 0 if self._ledger is None else self._ledger.peak + self._held

    def _start_again(self) -> None:
        if self._cuda:
            torch.cuda.reset_peak_memory_stats(self._device)
        elif self._ledger is not None:
            self._ledger.start_again()


class _Ledger(TorchDispatchMode):
    """Tracks the live storages by address, their total bytes and the maximum of this total."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        self._live = self.peak = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """A method of torch. With False, torch does not import its compiler, ``torch._dynamo``, for this mode."""
        return False

    def start_again(self) -> None:
        """Forget the maximum so far."""
        self.peak = self._live

    def add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key, num_bytes = id(storage), storage.nbytes()
        if key in self._known:
            return

        def forget(_: object) -> None:
            del self._known[key]
            self._live -= num_bytes

        self._known[key] = weakref.ref(storage, forget)
        self._live += num_bytes
        self.peak = max(self.peak, self._live)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_iter(result):
            if isinstance(leaf, torch.Tensor):
                for part in strided(leaf):
                    self.add(part)
        return result


def strided(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """``tensor`` itself, or the strided tensors that a sparse CSR tensor consists of."""
    if tensor.layout == torch.sparse_csr:
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    return (tensor,)
