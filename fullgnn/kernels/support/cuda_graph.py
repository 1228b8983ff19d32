"""A CUDA graph: capture, replay, size of the private memory pool, and cleanup after a failed capture."""

import logging
from collections.abc import Callable

import torch

log = logging.getLogger(__name__)


class CudaGraph:
    """A CUDA graph: launches on the current stream of a GPU, captured once and replayed as a whole."""

    def __init__(self) -> None:
        self._graph, self._pool, self._whole = torch.cuda.CUDAGraph(), GraphPool(), False

    def capture(self, launch: Callable[[], None]) -> None:
        """Capture the launches of ``launch`` without running them. The current stream must not be the default one."""
        # thread_local, since NCCL's watchdog thread may query its events during the capture.
        stream, mode = torch.cuda.current_stream(), "thread_local"
        with torch.cuda.graph(self._graph, pool=self._pool.id, stream=stream, capture_error_mode=mode):
            launch()
        self._whole = True

    def replay(self) -> None:
        """Launch the captured graph on the current stream."""
        self._graph.replay()

    def idle_bytes(self) -> int:
        """Memory that the graph holds beyond the tensors that the allocator counts."""
        return self._pool.idle_bytes()

    def reset(self) -> None:
        """Free the graph, also after a failed capture. The graph cannot be replayed afterwards."""
        self._graph.reset()
        if not self._whole:
            self._pool.abandon()


class GraphPool:
    """A pool that one capture on the current GPU allocates from."""

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
            pass  # the allocator was notified, or the capture had not begun
        torch.cuda.empty_cache()
        if self._segments():  # a released pool has none
            try:
                torch._C._cuda_releasePool(self._device, self.id)
                torch.cuda.empty_cache()
            except RuntimeError as error:
                log.warning("memory of a failed capture stays reserved: %s", " ".join(str(error).split())[:200])

    def _segments(self) -> list[dict]:
        return [s for s in torch.cuda.memory_snapshot() if tuple(s["segment_pool_id"]) == tuple(self.id)]
