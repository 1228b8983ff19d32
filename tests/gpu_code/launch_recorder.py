"""A CUDA graph without a GPU: it records the launches of a step, and replays them into the same memory.

    graph = LaunchRecorder()
    graph.capture(step)      # Python runs once; no value changes
    graph.replay()           # the recorded launches run; Python of the step does not

A CUDA graph holds launches: kernels with the addresses and the numbers that they were given. A step that trains
correctly in Python can train wrongly as a graph, because a replay repeats the numbers of the capture (a learning rate,
the number of the epoch) and the branches that Python took, and reads the memory that tensors had in the capture.
``LaunchRecorder`` does the same on a CPU, so the losses of its replays show such a mistake: they must equal those of
Python, to the bit.

    operators of torch     seen by a ``TorchDispatchMode``; views and allocations launch nothing and are not recorded
    Triton kernels         run by Triton's interpreter, recorded where it begins the programs of a launch
    collectives            operators too. In a capture they wait for no other rank and move nothing, as those of NCCL;
                           ``wait`` is recorded as well, where the step calls it

What the capture of a CUDA graph refuses raises ``CaptureError``: the host reads a number of the device or waits for a
size (``host_waits.py`` has the list), a tensor is made of Python numbers, a transfer is never waited for. Memory from
outside the capture is held by its address only: a replay raises if that memory was freed. Differences from a CUDA
graph: memory that is freed within the capture is not used again, and sparse tensors are held alive.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import FakeProcessGroup, FakeWork
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map_only

from tests.gpu_code.host_waits import HostWaits
from tests.gpu_code.recorded_memory import Address, Memory

ALLOCATES = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
"""Operators that allocate without a launch."""

COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)


class CaptureError(RuntimeError):
    """The step does what no CUDA graph can capture."""


@dataclass(frozen=True)
class Launch:
    """One recorded call. Its tensors are ``Address``es."""

    kind: Literal["operator", "kernel", "collective", "wait"]
    name: str
    call: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: list[Address]  # what an operator has allocated and filled
    transfer: int = -1  # of a collective and of its wait: their common number


class LaunchRecorder:
    """See the head of this file. It is a ``StepGraph``, and can be used for any function, on any number of ranks."""

    def __init__(self) -> None:
        self.launches: list[Launch] = []

    def capture(self, step: Callable[[], None]) -> None:
        """Record the launches of ``step``. What ``step`` has written is restored, whether it raises or not.

        Raises:
            CaptureError: the step does what no CUDA graph can capture.
        """
        memory, random = Memory(), torch.get_rng_state()
        recording, waits = _Recording(self.launches, memory), _AllOnDevice()
        try:
            with waits, _seen_kernels(recording), _seen_waits(recording), recording:
                recording.waits = waits
                step()
            recording.check()
            if recording.pending:
                raise CaptureError(f"nothing waits for {recording.name_of(min(recording.pending))}")
        finally:
            memory.restore()
            torch.set_rng_state(random)

    @torch.no_grad()
    def replay(self) -> None:
        """Run the launches, and wait for transfers where the step has waited.

        Raises:
            RuntimeError: memory from outside the capture has been freed since.
        """
        flying: dict[int, tuple[Any, Any]] = {}
        for launch in self.launches:
            if launch.kind == "wait":
                flying.pop(launch.transfer)[0].wait()
                continue
            try:
                args, kwargs = tree_map_only(Address, Address.tensor, (launch.args, launch.kwargs))
                into = [address.tensor() for address in launch.results]
            except ReferenceError as error:
                raise RuntimeError(f"a replay of {launch.name} uses memory that was freed after the capture") from error
            outcome = launch.call(*args, **kwargs)
            if launch.kind == "collective":
                flying[launch.transfer] = _work(outcome), args  # the tensors live until their transfer has ended
            elif launch.kind == "operator" and into:
                for old, new in zip(into, _tensors(outcome), strict=True):
                    old.copy_(new)

    def counts(self) -> Counter[str]:
        """How many launches there are of each kind."""
        return Counter(launch.kind for launch in self.launches)

    def idle_bytes(self) -> int:
        return 0

    def reset(self) -> None:
        self.launches = []


class _AllOnDevice(HostWaits):
    """Counts the host's waits in a step all of whose tensors are on the device."""

    def holds(self, tensor: Any) -> bool:
        return isinstance(tensor, Tensor)


class _Recording(TorchDispatchMode):
    """Appends what runs in its ``with`` block to ``launches``."""

    def __init__(self, launches: list[Launch], memory: Memory):
        super().__init__()
        self.launches, self.memory = launches, memory
        self.waits: HostWaits = _AllOnDevice()
        self.pending: dict[int, FakeWork] = {}  # transfers that nothing has waited for yet, by number
        self._num_transfers = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """A method of torch. With True, torch imports ``torch._dynamo`` in the first capture of a process, which keeps
        the loss of this step alive."""
        return False

    def check(self) -> None:
        """Raise if the host has waited."""
        if self.waits.total:
            raise CaptureError(f"the host waits for the device: {', '.join(self.waits.counts)}")

    def name_of(self, transfer: int) -> str:
        return next(launch.name for launch in self.launches if launch.transfer == transfer)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten.lift_fresh.default:
            raise CaptureError("a tensor is made of Python numbers, which a GPU copies from the host")
        if func.namespace == "c10d":
            return self._collective(func, args, kwargs)
        given = list(_tensors((args, kwargs)))
        written = [
            value
            for number, argument in enumerate(func._schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
            for value in _tensors(args[number] if number < len(args) else kwargs.get(argument.name))
        ]
        self.memory.save(written)
        frozen = self.memory.addresses((args, kwargs))
        result = func(*args, **kwargs)
        self.check()
        devices = {tensor.device.type for tensor in (*given, *_tensors(result))}
        if func in COPIES and len(devices) > 1 and not (kwargs.get("non_blocking") or True in args[2:3]):
            raise CaptureError("the host waits for the device: a copy between them")
        made = [tensor for tensor in _tensors(result) if not self.memory.share(tensor, given)]
        self.memory.add(made)
        if written or (made and func._schema.name.rpartition(":")[2] not in ALLOCATES):
            results = [] if written else self.memory.addresses(list(_tensors(result)))
            self.launches.append(Launch("operator", str(func), func, *frozen, results))
        return result

    def kernel(self, executor: Any, launch: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Record a launch of a Triton kernel, and run it."""
        self.memory.save(list(_tensors((args, kwargs))))
        self.launches.append(
            Launch("kernel", executor.fn.__name__, executor, *self.memory.addresses((args, kwargs)), results=[])
        )
        return launch(executor, *args, **kwargs)

    def waited(self, work: FakeWork) -> None:
        """Record that the step waits for a transfer."""
        numbers = [number for number, pending in self.pending.items() if pending is work]
        for number in numbers:
            del self.pending[number]
            self.launches.append(Launch("wait", f"wait for {self.name_of(number)}", work.wait, (), {}, [], number))

    def _collective(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Record a collective, and call it in a group that moves nothing."""
        self.memory.save(list(_tensors((args, kwargs))))
        frozen = self.memory.addresses((args, kwargs))
        result = func(*[_without_others(value) for value in args], **kwargs)
        self._num_transfers += 1
        self.pending[self._num_transfers] = _work(result)
        self.launches.append(Launch("collective", str(func), func, *frozen, [], self._num_transfers))
        return result


@contextmanager
def _seen_kernels(recording: _Recording) -> Iterator[None]:
    """Let ``recording`` see the launches of Triton's interpreter."""
    if "triton.runtime.interpreter" not in sys.modules:
        yield
        return
    from triton.runtime.interpreter import GridExecutor

    launch = GridExecutor.__call__

    def launched(executor: Any, *args: Any, **kwargs: Any) -> Any:
        return recording.kernel(executor, launch, args, kwargs)

    with mock.patch.object(GridExecutor, "__call__", launched):
        yield


@contextmanager
def _seen_waits(recording: _Recording) -> Iterator[None]:
    """Let ``recording`` see where the step waits for its transfers."""
    wait = FakeWork.wait

    def waited(work: FakeWork, *args: Any) -> Any:
        recording.waited(work)
        return wait(work, *args)

    with mock.patch.object(FakeWork, "wait", waited):
        yield


def _tensors(tree: Any) -> Iterator[Tensor]:
    return (leaf for leaf in tree_iter(tree) if isinstance(leaf, Tensor))


def _work(result: Any) -> Any:
    """The handle in the ``result`` of a collective."""
    return dist.Work.unbox(result if isinstance(result, torch.ScriptObject) else result[-1])


def _without_others(value: Any) -> Any:
    """In place of a process group, a group of the same size whose collectives return at once and move nothing."""
    if not isinstance(value, torch.ScriptObject) or value._type().name() != "ProcessGroup":
        return value
    group = dist.ProcessGroup.unbox(value)
    rank, size = group.rank(), group.size()
    alone, kind = dist.ProcessGroup(dist.HashStore(), rank, size), dist.ProcessGroup.BackendType.CUSTOM
    alone._set_default_backend(kind)
    alone._register_backend(torch.device("cpu"), kind, FakeProcessGroup._create_internal(rank, size))
    return alone.boxed()
