"""Slots in shared memory: ranks read each other's rows from them."""

import time

import pytest
import torch

from fullgnn.distributed import SharedSlots, World, can_share_memory
from fullgnn.kernels.support.trials import TensorPeak

ROUNDS = 200
DTYPES = (torch.float32, torch.float64, torch.bfloat16)


def rounds(world: World, widths: list[int], num_slots: int) -> bool:
    """In each of many rounds, every rank writes its number and the round's, and its readers read them.

    Width, dtype and numbers of rows differ from round to round, and so do the ranks that read.
    """
    assert can_share_memory(world) == (world.size > 1 and world.device.type == "cpu")
    slots = SharedSlots(world.size, world.rank, timeout_s=60, num_slots=num_slots)
    others = [rank for rank in range(world.size) if rank != world.rank]
    for number in range(1, ROUNDS + 1):
        width, dtype = widths[number % len(widths)], DTYPES[number % len(DTYPES)]
        num_rows = [(7 * rank + number // 5) % 4 for rank in range(world.size)]  # some ranks have no rows
        reads = [[reader for reader in range(world.size) if (reader + number) % 3] for _ in range(world.size)]
        mine = slots.begin(num_rows, width, dtype, [rank for rank in reads[world.rank] if rank != world.rank])
        if mine.shape != (num_rows[world.rank], width) or mine.dtype != dtype or mine.data_ptr() % 64:
            return False
        mine.fill_(30 * world.rank + number % 30)  # exact in every dtype
        slots.publish()
        for rank in others if world.rank in reads[world.rank] else []:
            rows = slots.read(rank)
            if rows.shape != (num_rows[rank], width) or not (rows == 30 * rank + number % 30).all():
                return False
        slots.end()
    return True


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("widths", [[1], [5, 5, 16], [3, 40, 7, 1, 90, 90, 2]])
@pytest.mark.parametrize("num_slots", [1, 2])
def test_every_round_is_read_as_it_was_written(ranks, world_size: int, widths: list[int], num_slots: int) -> None:
    assert all(ranks(world_size)(rounds, widths, num_slots))


def read_late(world: World) -> list[bool]:
    """Rank 1 reads the rows of rank 0 in the first round, and once more long after rank 0 could begin the third.

    In the second and third rounds nobody reads. What rank 1 found, both times.
    """
    slots, are_right = SharedSlots(2, world.rank, timeout_s=60), []
    for number in (1, 2, 3):
        slots.begin([4, 4], 8, torch.float32, [1] if (number, world.rank) == (1, 0) else []).fill_(number)
        slots.publish()
        if (number, world.rank) == (1, 1):
            rows = slots.read(0)
            are_right.append(bool((rows == 1).all()))
            time.sleep(0.2)
            are_right.append(bool((rows == 1).all()))
        slots.end()
    return are_right


def test_a_slot_is_written_again_only_after_the_readers_of_its_last_round(ranks) -> None:
    assert ranks(2)(read_late)[1] == [True, True]


def mapped_bytes(world: World) -> list[int]:
    """The bytes of this rank's own slots, after rounds of different shapes and after the release."""
    slots, sizes = SharedSlots(2, world.rank, timeout_s=60), []
    for num_rows, width, dtype in (
        ([3, 5], 20, torch.float32),
        ([2, 1], 9, torch.float64),
        ([4, 1], 9, torch.float64),  # only rank 0 needs more
        ([0, 0], 1000, torch.float32),
    ):
        slots.begin(num_rows, width, dtype, [])
        slots.publish()
        slots.read(1 - world.rank)
        slots.end()
        sizes.append(sum(tensor.nbytes for tensor in slots.tensors()))
    slots.release()
    return [*sizes, len(slots.tensors())]


def test_slots_are_as_large_as_the_largest_round(ranks) -> None:
    """A row of 20 float32 or 9 float64 takes two lines of 64 bytes. The counters take one line."""
    first, second = ([64 + 2 * 128 * rows for rows in counts] for counts in ((3, 3, 4, 4), (5, 5, 5, 5)))
    assert ranks(2)(mapped_bytes) == [[*first, 0], [*second, 0]]


def waits_for_nobody(world: World) -> str:
    slots = SharedSlots(2, world.rank, timeout_s=0.2)
    slots.begin([1, 1], 1, torch.float32, [])
    if world.rank == 0:
        try:
            slots.read(1)  # rank 1 never publishes
        except TimeoutError as error:
            return str(error)
    return ""


def test_a_wait_ends_with_the_timeout(ranks) -> None:
    assert ranks(2)(waits_for_nobody)[0] == "rank 1 did not reach round 1 within 0.2 s"


def waits_for_a_rank_that_has_ended(world: World) -> str:
    slots = SharedSlots(2, world.rank, timeout_s=60)
    slots.begin([1, 1], 1, torch.float32, [])
    if world.rank == 0:
        slots.pids[1] = 2**22 + 1  # above the largest process id of Linux
        try:
            slots.read(1)
        except ConnectionError as error:
            return str(error)
    return ""


def test_a_wait_for_a_rank_that_has_ended_ends_soon(ranks) -> None:
    assert ranks(2)(waits_for_a_rank_that_has_ended)[0] == "rank 1 has ended"


def counted(world: World) -> int:
    """Peak bytes of tensors while this rank writes its rows and reads those of the other rank."""
    peak = TensorPeak(world.device)
    with peak.watch():
        slots = SharedSlots(2, world.rank, timeout_s=60)
        slots.begin([10, 1000], 16, torch.float32, []).fill_(1)
        slots.publish()
        slots.read(1 - world.rank).sum()
    return peak.bytes


def test_each_rank_counts_its_own_slots_alone(ranks) -> None:
    for num_bytes, rows in zip(ranks(2)(counted), (10, 1000)):
        assert 0 <= num_bytes - 2 * rows * 16 * 4 < 200
