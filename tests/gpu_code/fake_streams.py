"""Streams and events that let torch's CUDA sanitizer find a missing wait, without a GPU.

Every launch tells the sanitizer which memory it reads and writes, and on which stream. The sanitizer (torch's
``torch.cuda._sanitizer``, which a GPU feeds in the same way) knows which launches of other streams have ended by the
waits that were called; an access that is not ordered after the last write raises ``CUDASanitizerErrors``. Reads of
pinned memory by the host are checked as well: they must come after a synchronisation with the copy that fills it.

Memory is known by the address of its first element, as to the sanitizer on a GPU. All memory that was used is kept, so
that no address is used twice; a missing ``record_stream`` is therefore not found.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.cuda._sanitizer import CUDASanitizerErrors, EventHandler

MEMORY_BYTES = 1 << 33


class FakeStream:
    """A ``torch.cuda.Stream``."""

    device = torch.device("cuda", 0)

    def __init__(self, streams: "Streams", number: int):
        self._streams, self.cuda_stream = streams, number
        streams.handler._handle_stream_creation(number)

    def wait_event(self, event: "FakeEvent") -> None:
        self._streams.handler._handle_event_wait(id(event), self.cuda_stream)

    def wait_stream(self, other: "FakeStream") -> None:
        self.wait_event(other.record_event())

    def record_event(self, event: "FakeEvent | None" = None) -> "FakeEvent":
        event = event or FakeEvent(self._streams)
        event.record(self)
        return event

    def synchronize(self) -> None:
        self._streams.handler._handle_stream_synchronization(self.cuda_stream)

    def query(self) -> bool:
        return True


class FakeEvent:
    """A ``torch.cuda.Event``."""

    def __init__(self, streams: "Streams"):
        self._streams = streams
        streams.kept.append(self)  # so that no other event has its id
        streams.handler._handle_event_creation(id(self))

    def record(self, stream: FakeStream | None = None) -> None:
        self._streams.handler._handle_event_record(id(self), (stream or self._streams.current()).cuda_stream)

    def wait(self, stream: FakeStream | None = None) -> None:
        (stream or self._streams.current()).wait_event(self)

    def synchronize(self) -> None:
        self._streams.handler._handle_event_synchronization(id(self))

    def query(self) -> bool:
        """Yes: and then the host knows what was recorded to be over, as after ``synchronize``."""
        self.synchronize()
        return True

    def elapsed_time(self, other: "FakeEvent") -> float:
        return 0.0


class Streams:
    """The streams of the fake GPU, and the sanitizer that they feed."""

    def __init__(self) -> None:
        self.handler = EventHandler()
        self.kept: list[Any] = []
        self._num_streams = 0
        self._current = [self.new()]
        self._host_writes: dict[int, tuple[int, int]] = {}  # by address: the stream and the number of a copy to it

    def new(self, *args: Any, **kwargs: Any) -> FakeStream:
        self._num_streams += 1
        return FakeStream(self, self._num_streams - 1)  # 0 is the default stream

    def current(self, device: Any = None) -> FakeStream:
        return self._current[-1]

    @contextmanager
    def on(self, stream: FakeStream | None) -> Iterator[None]:
        self._current.append(stream or self.current())
        try:
            yield
        finally:
            self._current.pop()

    def launch(self, name: object, read: Iterable[Tensor], written: Iterable[Tensor]) -> None:
        """A launch on the current stream.

        Raises:
            CUDASanitizerErrors: it may run before a launch on another stream that it depends on has ended.
        """
        addresses = [{tensor.data_ptr(): tensor for tensor in some if tensor.numel()} for some in (read, written)]
        self.kept += [tensor.untyped_storage() for some in addresses for tensor in some.values()]
        reads, writes = (set(some) for some in addresses)
        names = {address: [] for address in reads | writes}
        stream = self.current().cuda_stream
        errors = self.handler._handle_kernel_launch(stream, reads - writes, writes, set(), str(name), names)
        if errors:
            raise CUDASanitizerErrors(errors)
        for address, tensor in addresses[1].items():
            if tensor.device.type == "cpu":
                self._host_writes[address] = stream, self.handler.seq_num

    def host_reads(self, tensors: Iterable[Tensor]) -> None:
        """The host reads ``tensors``.

        Raises:
            RuntimeError: a copy from the GPU to one of them may not have ended.
        """
        for tensor in tensors:
            stream, number = self._host_writes.get(tensor.data_ptr(), (0, 0))
            if number > self.handler.syncs.host_sync_state[stream]:
                raise RuntimeError("the host reads memory before it has waited for the copy that fills it")

    def replacements(self) -> dict[str, Callable[..., Any]]:
        """What replaces the functions and classes of ``torch.cuda``, by name."""
        properties = SimpleNamespace(
            name="fake", multi_processor_count=132, total_memory=MEMORY_BYTES, L2_cache_size=1 << 25
        )
        return {
            "Stream": self.new,
            "Event": lambda **kwargs: FakeEvent(self),
            "stream": self.on,
            "current_stream": self.current,
            "synchronize": lambda device=None: self.handler._handle_device_synchronization(),
            "_lazy_init": lambda: None,
            "is_available": lambda: True,
            "is_current_stream_capturing": lambda: False,
            "device_count": lambda: 1,
            "current_device": lambda: 0,
            "is_initialized": lambda: True,
            "set_device": lambda device: None,
            "get_device_name": lambda device=None: "fake",
            "get_device_capability": lambda device=None: (9, 0),
            "get_device_properties": lambda device=None: properties,
            "mem_get_info": lambda device=None: (MEMORY_BYTES, MEMORY_BYTES),
            "memory_reserved": lambda device=None: 0,
            "max_memory_allocated": lambda device=None: 0,
            "reset_peak_memory_stats": lambda device=None: None,
            "empty_cache": lambda: None,
            "get_rng_state": lambda device=None: torch.get_rng_state(),
            "set_rng_state": lambda state, device=None: None,
        }
