"""A CUDA graph: capture, replay, the size of its private memory pool, and its end after a capture that failed."""

import logging
from collections.abc import Callable

import torch

log = logging.getLogger(__name__)


class CudaGraph:
    """What is launched on the current stream of a GPU, to be launched again as a whole."""

    def __init__(self) -> None:
        self._graph, self._pool, self._whole = torch.cuda.CUDAGraph(), GraphPool(), False

    def capture(self, launch: Callable[[], None]) -> None:
        """Record what ``launch`` launches; nothing of it runs. The current stream is not the default one."""
        # thread_local: NCCL's watchdog, a thread, may look at its events meanwhile.
        stream, mode = torch.cuda.current_stream(), "thread_local"
        with torch.cuda.graph(self._graph, pool=self._pool.id, stream=stream, capture_error_mode=mode):
            launch()
        self._whole = True

    def replay(self) -> None:
        """Launch all of it, on the current stream."""
        self._graph.replay()

    def idle_bytes(self) -> int:
        """Memory that the graph holds beyond the tensors that the allocator counts."""
        return self._pool.idle_bytes()

    def reset(self) -> None:
        """Free it, also after a capture that failed; it is not replayed again."""
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
        """Undo what a capture that failed has left of itself in the allocator; the graph has been reset.

        Where the capture is invalid, ``capture_end`` raises before it has told the allocator (torch before
        github.com/pytorch/pytorch/pull/180395), which then goes on asking, at every allocation, whether it belongs to
        the graph; and the pool is never released (before pull/190348). torch has no public way to undo either.
        """
        end = getattr(torch._C, "_cuda_endAllocateToPool", None)
        end = end or getattr(torch._C, "_cuda_endAllocateCurrentStreamToPool", None)  # its name up to torch 2.7
        try:
            if end is not None:
                end(self._device, self.id)
        except RuntimeError:
            pass  # it has been told, or the capture had not begun
        torch.cuda.empty_cache()
        if self._segments():  # of a pool that had been released, there would be none
            try:
                torch._C._cuda_releasePool(self._device, self.id)
                torch.cuda.empty_cache()
            except RuntimeError as error:
                log.warning("memory of a failed capture stays reserved: %s", " ".join(str(error).split())[:200])

    def _segments(self) -> list[dict]:
        return [s for s in torch.cuda.memory_snapshot() if tuple(s["segment_pool_id"]) == tuple(self.id)]
