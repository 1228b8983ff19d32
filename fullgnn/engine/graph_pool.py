"""The private memory pool of a CUDA graph: its size, and its end after a capture that failed."""

import logging

import torch

log = logging.getLogger(__name__)


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
