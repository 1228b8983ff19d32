"""A CUDA graph: its capture and replay, the size of its memory pool, and the cleanup after a failed capture."""

import logging
from collections.abc import Callable

import torch

log = logging.getLogger(__name__)


def is_capturing(device: torch.device) -> bool:
    """Whether launches on the current stream of ``device`` are being captured as a CUDA graph."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


class CudaGraph:
    """Launches on the current stream of a GPU, captured once and then replayed as a whole."""

    def __init__(self) -> None:
        self._graph, self._pool, self._captured = torch.cuda.CUDAGraph(), GraphPool(), False

    def capture(self, launch: Callable[[], None]) -> None:
        """Capture the launches of ``launch`` without running them. The current stream must not be the default one."""
        # thread_local, since NCCL's watchdog thread may query its events during the capture.
        stream, mode = torch.cuda.current_stream(), "thread_local"
        with torch.cuda.graph(self._graph, pool=self._pool.id, stream=stream, capture_error_mode=mode):
            launch()
        self._captured = True

    def replay(self) -> None:
        """Launch the captured graph on the current stream."""
        self._graph.replay()

    def idle_bytes(self) -> int:
        """Memory that the graph holds beyond the tensors that the allocator counts."""
        return self._pool.idle_bytes()

    def reset(self) -> None:
        """Free the graph, also after a failed capture. The graph cannot be replayed afterwards."""
        self._graph.reset()
        if not self._captured:
            self._pool.abandon()


class GraphPool:
    """A memory pool from which one capture on the current GPU allocates."""

    def __init__(self) -> None:
        self.id = torch.cuda.graph_pool_handle()
        self._device = torch.cuda.current_device()

    def idle_bytes(self) -> int:
        """Bytes of the pool that the allocator does not count as allocated, and that a replay writes nevertheless."""
        return sum(segment["total_size"] - segment["allocated_size"] for segment in self._segments())

    def abandon(self) -> None:
        """Remove the traces of a failed capture from the allocator, after the graph has been reset.

        If the capture is invalid, ``capture_end`` raises before it notifies the allocator (torch before
        github.com/pytorch/pytorch/pull/180395). The allocator then still checks, at every allocation, whether the
        allocation belongs to the graph, and never releases the pool (before pull/190348). torch has no public way to
        undo either.
        """
        end = getattr(torch._C, "_cuda_endAllocateToPool", None)
        end = end or getattr(torch._C, "_cuda_endAllocateCurrentStreamToPool", None)  # its name up to torch 2.7
        try:
            if end is not None:
                end(self._device, self.id)
        except RuntimeError:
            pass  # the allocator had been notified, or the capture had not begun
        torch.cuda.empty_cache()
        if self._segments():  # a released pool has no segments
            try:
                torch._C._cuda_releasePool(self._device, self.id)
                torch.cuda.empty_cache()
            except RuntimeError as error:
                reason = " ".join(str(error).split())[:200]
                log.warning("the memory of a failed CUDA graph capture stays reserved: %s", reason)

    def _segments(self) -> list[dict]:
        """The memory that the allocator has reserved for the pool, as ``torch.cuda.memory_snapshot`` describes it."""
        return [s for s in torch.cuda.memory_snapshot() if tuple(s["segment_pool_id"]) == tuple(self.id)]
