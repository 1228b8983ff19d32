"""Peak memory of the process and of its tensors."""

import resource
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from fullgnn.kernels.support.trials import add_counter
from fullgnn.storage.memory import free_bytes


def peak_process_bytes() -> int:
    """Peak resident memory of this process since it started, or since ``forget_peak_process_bytes``, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss would carry over the parent's peak
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def forget_peak_process_bytes() -> None:
    """Let ``peak_process_bytes`` count from now on, where the system can do this."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def left_bytes(device: torch.device, num_sharing: int, peak_bytes: int) -> int:
    """Bytes of the ``device`` of a rank that are free even where its tensors take ``peak_bytes``.

    On a GPU this is its memory without what other processes, and all but the allocator of this one, hold now. On a CPU
    it is what the machine, its container and the limit of the process leave now; a process that keeps the memory that
    it frees (``keep_freed_memory``) holds its peak already. Ranks that share the device have equal parts.

    Args:
        num_sharing: ``World.ranks_per_device``.
    """
    if device.type != "cuda":
        return free_bytes() // num_sharing
    free, _ = torch.cuda.mem_get_info(device)
    return free // num_sharing + torch.cuda.memory_reserved(device) - peak_bytes


class TensorPeak:
    """Peak bytes of live tensors on ``device``, without the memory that autotuning trials use (``trials.py``).

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
        add_counter(self)

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
        held = {part.untyped_storage().data_ptr(): part for tensor in existing for part in _strided(tensor)}
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
        self._most = self.bytes
        self._start_again()

    def end_trial(self) -> None:
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
                for part in _strided(leaf):
                    self.add(part)
        return result


def _strided(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """``tensor`` itself, or the strided tensors that a sparse CSR tensor consists of."""
    if tensor.layout == torch.sparse_csr:
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    return (tensor,)
