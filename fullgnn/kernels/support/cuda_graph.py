"""A CUDA graph: its capture and replay, and the size of its memory pool."""

from collections.abc import Callable
from contextlib import suppress

import torch


class CudaGraph:
    """Launches on the current stream of a GPU, captured once and then replayed as a whole."""

    def __init__(self) -> None:
        self._graph, self._pool_id, self._captured = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle(), False

    def capture(self, launch: Callable[[], None]) -> None:
        """Capture the launches of ``launch`` without running them. The current stream must not be the default one."""
        # thread_local, since NCCL's watchdog thread may query its events during the capture.
        stream, mode = torch.cuda.current_stream(), "thread_local"
        with torch.cuda.graph(self._graph, pool=self._pool_id, stream=stream, capture_error_mode=mode):
            launch()
        self._captured = True

    def replay(self) -> None:
        """Launch the captured graph on the current stream."""
        self._graph.replay()

    def idle_bytes(self) -> int:
        """Bytes of the graph's pool that the allocator does not count as allocated, and that a replay writes
        nevertheless."""
        pool = [part for part in torch.cuda.memory_snapshot() if tuple(part["segment_pool_id"]) == tuple(self._pool_id)]
        return sum(segment["total_size"] - segment["allocated_size"] for segment in pool)

    def reset(self) -> None:
        """Free the graph, also after a failed capture. The graph cannot be replayed afterwards.

        A capture that CUDA has invalidated never ends for the allocator of a torch before the pull requests 180395 and
        190348 of pytorch/pytorch: the memory of its pool stays reserved, and later captures may fail.
        """
        self._graph.reset()
        if not self._captured:
            with suppress(RuntimeError):  # of the allocator that waits for the end
                torch.cuda.empty_cache()
