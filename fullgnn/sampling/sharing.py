"""Hold the graph once on each machine, in memory that the ranks of the machine map.

    rank 0      sends the arrays to the first rank of every other machine
    the first rank of a machine   writes them to anonymous memory, and tells the others where it is
    the others  map that memory

Each array begins at a cache line. The memory is freed when the last process that has mapped it ends.
"""

import pickle
from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from fullgnn.distributed import World, all_gather_objects, receive_arrays, send_arrays
from fullgnn.distributed.shared_memory import map_shared
from fullgnn.errors import UnsupportedError
from fullgnn.kernels.support.aligned import LINE_BYTES

SharedArrays = dict[str, np.ndarray]
ArrayPlace = tuple[int, tuple[int, ...], str]  # first byte, shape, dtype
K = TypeVar("K")
T = TypeVar("T")


def share(world: World, value: T | None) -> T:
    """Give every rank the picklable ``value`` of rank 0, whose arrays are shared. Every rank calls it.

    Returns:
        the value; its arrays are read-only where other processes read the same memory.

    Raises:
        UnsupportedError: the memory of a machine cannot be shared; the same on every rank.
    """
    if world.size == 1:
        assert value is not None
        return value
    arrays, first = SharedArrays(), world.rank - world.rank % world.local_size
    if world.rank == 0:
        buffers: list[pickle.PickleBuffer] = []
        content = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
        parts = memoryview(content), *(buffer.raw() for buffer in buffers)
        arrays = {str(number): np.frombuffer(part, np.uint8) for number, part in enumerate(parts)}
        for leader in range(world.local_size, world.size, world.local_size):
            send_arrays(arrays, leader)
    elif world.rank == first:
        arrays = receive_arrays(0)
    if world.local_size > 1:
        arrays = _shared(arrays, first, world.rank == first)
    held, *of_value = arrays.values()
    return pickle.loads(held.tobytes(), buffers=of_value)


def _shared(arrays: SharedArrays, first: int, is_first: bool) -> SharedArrays:
    """The ``arrays`` of the rank ``first``, in memory that the ranks of its machine map."""
    places, size = laid_out(arrays) if is_first else ({}, 0)

    def fill(memory: np.ndarray) -> None:
        for name, view in views(memory, places).items():
            view[...] = arrays[name]

    places = all_gather_objects(places)[first]
    try:
        (memory,), _ = map_shared(max(size, 1) if is_first else 0, [first], fill)
    except OSError as error:
        raise UnsupportedError(
            f"the ranks of a machine cannot share the memory of the graph ({error}): start fewer ranks on each machine,"
            " or on one with more memory"
        ) from None
    memory.flags.writeable = False
    return views(memory, places)


def laid_out(arrays: Mapping[K, np.ndarray], padding: int = 0) -> tuple[dict[K, ArrayPlace], int]:
    """Where ``arrays`` lie one behind the other, each at a cache line, and how many bytes they take.

    Args:
        padding: elements behind each array that may be read.
    """
    places, size = dict[K, ArrayPlace](), 0
    for name, array in arrays.items():
        places[name] = size, array.shape, array.dtype.str
        size += whole_lines(array.nbytes + padding * array.itemsize)
    return places, size


def views(memory: np.ndarray, places: Mapping[K, ArrayPlace]) -> dict[K, np.ndarray]:
    """The arrays that lie at these ``places`` of the ``memory``."""
    arrays = {}
    for name, (first, shape, dtype) in places.items():
        count = int(np.prod(shape, dtype=np.int64))
        arrays[name] = (np.frombuffer(memory, dtype, count, first) if count else np.empty(0, dtype)).reshape(shape)
    return arrays


def whole_lines(num_bytes: int) -> int:
    """``num_bytes``, rounded up to whole cache lines."""
    return -(-num_bytes // LINE_BYTES) * LINE_BYTES
