"""Tensors and objects arrive as they were sent, bytes are counted once, and an error on rank 0 reaches all ranks."""

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from fullgnn.distributed import (
    Axis,
    World,
    all_gather_objects,
    broadcast_object,
    from_rank0,
    receive_arrays,
    send_arrays,
)
from fullgnn.distributed import collectives as collectives_module
from fullgnn.errors import DataError
from fullgnn.telemetry.meter import Meter
from tests.cases import config
from tests.schemes import training

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
        results[f"{name} all"] = axis.all_gather(mine[:1])[:, 0, 0].tolist()
        source = axis.size - 1
        results[f"{name} last"] = axis.broadcast(mine.clone(), source).wait()[0, 0].item()
        results[f"{name} bytes"] = dict(meter.take().bytes_received)
    return results


def test_collectives_along_an_axis(ranks: Callable) -> None:
    outcomes = ranks(4)(collectives)
    num_bytes = 24  # 3 x 2 float32 elements
    for rank, results in enumerate(outcomes):
        row, replica = divmod(rank, 2)  # the mesh is row-major
        assert results["row sum"] == replica + (2 + replica)
        assert results["replica sum"] == 2 * row + (2 * row + 1)
        assert results["row last"] == 2 + replica
        assert results["replica last"] == 2 * row + 1
        assert results["row all"] == [replica, 2 + replica]
        assert results["replica all"] == [2 * row, 2 * row + 1]
        for axis, index in (("row", row), ("replica", replica)):
            broadcast = {"broadcast": num_bytes} if index == 0 else {}  # the source receives nothing
            assert results[f"{axis} bytes"] == {"all_reduce": num_bytes, "gather": 8, **broadcast}  # 2 (g-1)/g = 1


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
    return (
        computed,
        broadcast_object({"of": world.rank} if world.rank == 0 else None),
        all_gather_objects(world.rank**2),
    )


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


def ring(world: World, by_host: bool) -> dict[str, Any]:
    """Every rank sends its number to the next rank, and also a tensor without rows."""
    meter = Meter(world.device)
    axis = Axis(world.group, meter)
    axis.by_host |= by_host
    mine = torch.full((2, 3), float(world.rank), device=world.device)
    arriving = torch.full((2, 3), -1.0, device=world.device)
    after, before = (world.rank + 1) % world.size, (world.rank - 1) % world.size
    sent, received = axis.exchange([(mine, after), (mine[:0], after)], [(arriving, before), (arriving[:0], before)])
    if axis.by_host:
        mine.fill_(-2)  # a copy is sent
        assert (arriving == -1).all()  # the rows arrive only with wait()
    values = received[0].wait()
    for pending in (received[1], *sent):
        pending.wait()
    return {"same": values is arriving, "values": values.tolist(), "bytes": dict(meter.take().bytes_received)}


@pytest.mark.parametrize("by_host", [False, True])
def test_rows_travel_from_rank_to_rank_also_over_the_host(ranks: Callable, by_host: bool) -> None:
    for rank, outcome in enumerate(ranks(3)(ring, by_host)):
        assert outcome == {"same": True, "values": [[(rank - 1) % 3] * 3] * 2, "bytes": {"exchange": 24}}


def step_over_the_host(world: World, cfg: Any, kind: str) -> dict[str, np.ndarray]:
    with mock.patch.object(collectives_module.dist, "get_backend_config", lambda group: "cpu:gloo,cuda:gloo"):
        return training.one_step(world, cfg, kind)


@pytest.mark.parametrize("overrides", [[], ["scheme.stage_order=broadcast", "scheme.exchange=broadcast"]])
def test_a_step_whose_rows_travel_over_the_host_equals_the_oracle(ranks: Callable, overrides: list[str]) -> None:
    cfg = config("scheme=1.5d", "scheme.shared_memory=false", "runtime.dtype=float64", *overrides)
    training.assert_one_step_is_exact(ranks(4), cfg, "directed", step_over_the_host)


def backends(world: World) -> str:
    return torch.distributed.get_backend_config(world.mesh((world.size, 1), ("row", "replica")).get_group("row"))


def test_the_groups_of_a_mesh_name_their_backends(ranks: Callable) -> None:
    for names in ranks(2)(backends):
        assert names.startswith("cpu:gloo")
