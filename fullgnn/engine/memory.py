"""Peak memory: of the process, and of its tensors."""

import resource
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


def peak_process_bytes() -> int:
    """Most resident memory that this process has held since it started."""
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss would carry over the parent's peak
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class TensorPeak:
    """Most bytes of tensors alive at one time on ``device`` while ``watch`` was active.

    On a GPU this is the allocator's own count. The CPU allocator keeps none, so there the tensors that exist are
    counted once and those that operators make are followed until they are freed. That costs a Python call an operator:
    one epoch is enough, since all epochs allocate alike.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self.bytes = 0

    @contextmanager
    def watch(self, *existing: torch.Tensor) -> Iterator[None]:
        """Follow the operators inside; ``existing`` are the tensors held before, any layout. Where several are made of
        the same memory, as tensors of one NumPy array, it counts once."""
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            yield
            self.bytes = max(self.bytes, torch.cuda.max_memory_allocated(self._device))
            return
        ledger = _Ledger()
        held = {part.untyped_storage().data_ptr(): part for tensor in existing for part in _strided(tensor)}
        for part in held.values():
            ledger.add(part)
        with ledger:
            yield
        self.bytes = max(self.bytes, ledger.peak)


class _Ledger(TorchDispatchMode):
    """Live storages by address, their total and its maximum."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[int, weakref.ref] = {}
        self._live = self.peak = 0

    def add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key, num_bytes = id(storage), storage.nbytes()
        if key in self._known:
            return

        def forget(_: weakref.ref) -> None:
            del self._known[key]
            self._live -= num_bytes

        self._known[key] = weakref.ref(storage, forget)
        self._live += num_bytes
        self.peak = max(self.peak, self._live)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in tree_iter(result):
            if isinstance(leaf, torch.Tensor):
                for part in _strided(leaf):
                    self.add(part)
        return result


def _strided(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """``tensor``, or what a sparse one is made of."""
    if tensor.layout == torch.sparse_csr:
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    return (tensor,)
