"""A rank alone over collectives that move nothing."""

import sys

import torch.distributed as dist

from fullgnn.dist import dry_world
from tests.cases import config


def test_a_rank_leaves_the_process_as_it_was() -> None:
    hook = sys.excepthook
    for rank in range(2):
        with dry_world(config().runtime, rank, 2) as world:
            assert (world.rank, world.size, world.dry) == (rank, 2, True)
            assert dist.get_rank() == rank
    assert not dist.is_initialized()
    assert sys.excepthook is hook  # otherwise an error would name every rank that there was
