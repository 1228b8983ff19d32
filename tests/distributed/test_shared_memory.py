"""Slots in shared memory: ranks read each other's rows from them."""

import pytest
import torch

from fullgnn.distributed import SharedSlots, World, can_share_memory
from fullgnn.engine.memory import TensorPeak

ROUNDS = 200


def rounds(world: World, width: int, dtype: torch.dtype) -> bool:
    """In each of many rounds, every rank writes its number and the round's, and reads those of all other ranks."""
    assert can_share_memory(world) == (world.size > 1 and world.device.type == "cpu")
    num_rows = [(7 * rank) % 4 for rank in range(world.size)]  # some ranks have no rows
    slots = SharedSlots(num_rows, width, dtype, timeout_s=60, rank=world.rank)
    everyone = [rank for rank in range(world.size) if rank != world.rank]
    for number in range(1, ROUNDS + 1):
        slots.begin(everyone).fill_(1000 * world.rank + number)
        slots.publish()
        for rank in everyone:
            rows = slots.read(rank)
            if rows.shape != (num_rows[rank], width) or not (rows == 1000 * rank + number).all():
                return False
        slots.end()
    return True


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize(("width", "dtype"), [(1, torch.float32), (5, torch.float64), (16, torch.bfloat16)])
def test_every_round_is_read_as_it_was_written(ranks, world_size: int, width: int, dtype: torch.dtype) -> None:
    assert all(ranks(world_size)(rounds, width, dtype))


def waits_for_nobody(world: World) -> str:
    slots = SharedSlots([1, 1], 1, torch.float32, timeout_s=0.2, rank=world.rank)
    slots.begin([])
    if world.rank == 0:
        try:
            slots.read(1)  # rank 1 never publishes
        except TimeoutError as error:
            return str(error)
    return ""


def test_a_wait_ends_with_the_timeout(ranks) -> None:
    assert ranks(2)(waits_for_nobody)[0] == "rank 1 did not reach round 1 within 0.2 s"


def counted(world: World) -> int:
    """Peak bytes of tensors while this rank writes its rows and reads those of the other rank."""
    peak = TensorPeak(world.device)
    with peak.watch():
        slots = SharedSlots([10, 1000], 16, torch.float32, timeout_s=60, rank=world.rank)
        slots.begin([]).fill_(1)
        slots.publish()
        slots.read(1 - world.rank).sum()
    return peak.bytes


def test_each_rank_counts_its_own_slots_alone(ranks) -> None:
    for found, rows in zip(ranks(2)(counted), (10, 1000)):
        assert 0 <= found - 2 * rows * 16 * 4 < 200
