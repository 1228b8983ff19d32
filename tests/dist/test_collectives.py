"""What moves between ranks arrives as it was sent, is counted once, and an error on rank 0 is an error on all."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fullgnn.dist import Axis, World, all_gather_objects, from_rank0, receive_arrays, send_arrays, share
from fullgnn.errors import DataError
from fullgnn.meter import Meter

ARRAYS = {
    "floats": np.arange(6, dtype=np.float64).reshape(2, 3),
    "bools": np.array([True, False, True]),
    "empty": np.empty((0, 4), np.float32),
    "scalar": np.array(7, np.int64),
    "transposed": np.arange(6, dtype=np.int32).reshape(2, 3).T,
    "read_only": np.broadcast_to(np.float32(3), (4,)),
}


def collectives(world: World) -> dict[str, Any]:
    meter = Meter(world.device)
    mesh = world.mesh((world.size // 2, 2), ("row", "replica"))
    results: dict[str, Any] = {}
    for name in ("row", "replica"):
        axis = Axis(mesh.get_group(name), meter)
        mine = torch.full((3, 2), float(world.rank), device=world.device)
        results[f"{name} sum"] = axis.all_reduce(mine.clone())[0, 0].item()
        source = axis.size - 1
        results[f"{name} last"] = axis.broadcast(mine.clone(), source).wait()[0, 0].item()
        results[f"{name} bytes"] = dict(meter.take().bytes_received)
    return results


def test_collectives_along_an_axis(ranks: Callable) -> None:
    outcomes = ranks(4)(collectives)
    num_bytes = 24  # of 3 x 2 floats
    for rank, found in enumerate(outcomes):
        row, replica = divmod(rank, 2)  # the mesh is row-major
        assert found["row sum"] == replica + (2 + replica)
        assert found["replica sum"] == 2 * row + (2 * row + 1)
        assert found["row last"] == 2 + replica
        assert found["replica last"] == 2 * row + 1
        for axis, index in (("row", row), ("replica", replica)):
            broadcast = {"broadcast": num_bytes} if index == 0 else {}  # the source receives nothing
            assert found[f"{axis} bytes"] == {"all_reduce": num_bytes, **broadcast}  # 2 (g-1)/g = 1


def alone(world: World) -> tuple[bool, dict]:
    meter = Meter(world.device)
    axis = Axis(world.mesh((1,), ("only",)).get_group("only"), meter)
    tensor = torch.ones(3, device=world.device)
    same = axis.all_reduce(tensor) is tensor and axis.broadcast(tensor, 0).wait() is tensor
    return same, dict(meter.take().bytes_received)


def test_one_rank_keeps_its_tensor_and_counts_nothing(ranks: Callable) -> None:
    assert ranks(1)(alone) == [(True, {})]


def travel(world: World) -> dict[str, np.ndarray] | None:
    if world.rank == 0:
        send_arrays(ARRAYS, world.size - 1)
    return receive_arrays(0) if world.rank == world.size - 1 else None


def test_arrays_arrive_unchanged(ranks: Callable) -> None:
    arrived = ranks(3)(travel)[2]
    assert list(arrived) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert arrived[name].dtype == array.dtype and arrived[name].shape == array.shape
        assert np.array_equal(arrived[name], array)


def objects(world: World) -> tuple[Any, Any, list[Any]]:
    computed = from_rank0(lambda: f"rank {world.rank}")
    return computed, share({"of": world.rank} if world.rank == 0 else None), all_gather_objects(world.rank**2)


def test_objects(ranks: Callable) -> None:
    first, second = ranks(2)(objects)
    assert first == ("rank 0", {"of": 0}, [0, 1])
    assert second == (None, {"of": 0}, [0, 1])


def refuse(world: World) -> str:
    def compute() -> None:
        raise DataError(f"said by rank {world.rank}: do otherwise")

    with pytest.raises(DataError) as caught:
        from_rank0(compute)
    return str(caught.value)


def test_an_error_of_rank_0_is_raised_on_every_rank(ranks: Callable) -> None:
    assert ranks(3)(refuse) == ["said by rank 0: do otherwise"] * 3
