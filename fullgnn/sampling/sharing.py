"""Hold the graph once on each machine, in memory that the ranks of the machine map.

    rank 0      sends the arrays to the first rank of every other machine
    the first rank of a machine   writes them to anonymous memory, and tells the others where it is
    the others  map that memory

Each array begins at a cache line. The memory is freed when the last process that has mapped it ends.
"""

import mmap
import os
import pickle
from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from fullgnn.distributed import World, all_gather_objects, receive_arrays, send_arrays
from fullgnn.errors import UnsupportedError
from fullgnn.kernels.support.aligned import LINE_BYTES

Arrays = dict[str, np.ndarray]
Place = tuple[int, tuple[int, ...], str]  # first byte, shape, dtype
Places = dict[str, Place]
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
    arrays, first = Arrays(), world.rank - world.rank % world.local_size
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


def _shared(arrays: Arrays, first: int, is_first: bool) -> Arrays:
    """The ``arrays`` of the rank ``first``, in memory that the ranks of its machine map."""
    descriptor, problem, places = -1, "", Places()
    if is_first:
        try:
            descriptor, places = _write(arrays)
        except OSError as error:
            problem = f"{sum(array.nbytes for array in arrays.values()) / 1e9:.1f} GB: {error.strerror}"
    told = all_gather_objects((os.getpid(), descriptor, places, problem))
    pid, descriptor_of_first, places, _ = told[first]
    shared, problem = Arrays(), next((text for *_, text in told if text), "")
    if not problem:
        try:
            with open(f"/proc/{pid}/fd/{descriptor_of_first}", "rb") as file:
                shared = views(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ), places)
        except OSError as error:
            problem = str(error)
    problems = [text for text in all_gather_objects(problem) if text]  # all have mapped it, or failed
    if descriptor >= 0:
        os.close(descriptor)
    if problems:
        raise UnsupportedError(
            f"the ranks of a machine cannot share the memory of the graph ({problems[0]}): start fewer ranks on each"
            " machine, or on one with more memory"
        )
    return shared


def _write(arrays: Arrays) -> tuple[int, Places]:
    """Write ``arrays`` to anonymous memory; returns its descriptor."""
    places, size = laid_out(arrays)
    descriptor = os.memfd_create("fullgnn-graph")
    try:
        os.posix_fallocate(descriptor, 0, max(size, 1))  # too little memory is an error here, and no signal later
        for name, view in views(mmap.mmap(descriptor, max(size, 1)), places).items():
            view[...] = arrays[name]
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, places


def laid_out(arrays: Mapping[K, np.ndarray], padding: int = 0) -> tuple[dict[K, Place], int]:
    """Where ``arrays`` lie one behind the other, each at a cache line, and how many bytes they take.

    Args:
        padding: elements behind each array that may be read.
    """
    places, size = dict[K, Place](), 0
    for name, array in arrays.items():
        places[name] = size, array.shape, array.dtype.str
        size += whole_lines(array.nbytes + padding * array.itemsize)
    return places, size


def views(memory: mmap.mmap | np.ndarray, places: Mapping[K, Place]) -> dict[K, np.ndarray]:
    """The arrays that lie at these ``places`` of the ``memory``."""
    arrays = {}
    for name, (first, shape, dtype) in places.items():
        count = int(np.prod(shape, dtype=np.int64))
        arrays[name] = (np.frombuffer(memory, dtype, count, first) if count else np.empty(0, dtype)).reshape(shape)
    return arrays


def whole_lines(num_bytes: int) -> int:
    """``num_bytes``, rounded up to whole cache lines."""
    return -(-num_bytes // LINE_BYTES) * LINE_BYTES
