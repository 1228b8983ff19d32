"""The arrays of a graph, once on each machine."""

import os
from dataclasses import replace

import numpy as np
import pytest

from fullgnn.distributed import World
from fullgnn.errors import UnsupportedError
from fullgnn.sampling.sharing import share


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "indptr": np.arange(101, dtype=np.int64),
        "features": rng.standard_normal((100, 7)).astype(np.float32),
        "empty": np.empty((0, 3)),
        "mask": rng.random(100) < 0.5,
        "number": np.array(5),
    }


def shared(world: World, local_size: int) -> tuple[dict[str, np.ndarray], list[bool]]:
    """What a rank gets where ``local_size`` ranks share a machine, and which of the arrays it may write to."""
    held = share(replace(world, local_size=local_size), arrays() if world.rank == 0 else None)
    return {name: array.copy() for name, array in held.items()}, [array.flags.writeable for array in held.values()]


@pytest.mark.parametrize("local_size", [4, 2, 1])
def test_every_rank_of_every_machine_has_the_same_arrays(ranks, local_size: int) -> None:
    wanted = arrays()
    for held, writable in ranks(4)(shared, local_size):
        assert held.keys() == wanted.keys()
        for name, array in wanted.items():
            assert held[name].dtype == array.dtype and np.array_equal(held[name], array)
        if local_size > 1:
            assert not any(flag for flag, array in zip(writable, wanted.values()) if array.size)


def test_one_rank_keeps_its_arrays(ranks) -> None:
    ((held, writable),) = ranks(1)(shared, 1)
    assert all(np.array_equal(held[name], array) for name, array in arrays().items()) and all(writable)


def without_memory(world: World) -> str:
    def fail(descriptor: int, first: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    before, os.posix_fallocate = os.posix_fallocate, fail
    try:
        share(world, arrays() if world.rank == 0 else None)
    except UnsupportedError as error:
        return str(error)
    finally:
        os.posix_fallocate = before
    return ""


def test_too_little_memory_is_one_line_on_every_rank(ranks) -> None:
    told = ranks(2)(without_memory)
    assert told[0] == told[1] and "\n" not in told[0]
    assert told[0].startswith("the ranks of a machine cannot share the memory of the graph (0.0 GB: No space left")
