"""The token that distinguishes a start of the ranks from earlier ones, in a store that keeps all keys."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch.distributed as dist

from fullgnn.distributed.store import AbsentRank, agree_on_token


def agreed(store: dist.Store, size: int, ranks: range, timeout_s: float) -> list[str | AbsentRank]:
    """What each of ``ranks`` agrees on, or why it does not; each rank is a thread."""

    def join(rank: int) -> str | AbsentRank:
        try:
            return agree_on_token(store, rank, size, timeout_s)
        except AbsentRank as error:
            return error

    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(join, ranks))


@pytest.mark.parametrize("size", [1, 2, 5])
def test_every_start_has_a_token_of_its_own_that_all_ranks_know(size: int) -> None:
    store, tokens = dist.HashStore(), set()
    store.set_timeout(timedelta(seconds=10))
    for _ in range(4):
        (token,) = set(agreed(store, size, range(size), 20))
        tokens.add(token)
    (token,) = set(agreed(store, size + 1, range(size + 1), 20))  # torchrun may start another number of ranks
    assert len({*tokens, token}) == 5


def test_a_start_in_which_a_rank_has_ended_is_not_taken_for_the_next() -> None:
    store = dist.HashStore()
    assert next(str(error) for error in agreed(store, 3, range(0, 2), 0.5)) == "rank 2 has not joined the job"
    with ThreadPoolExecutor(2) as pool:  # these two come before rank 0, and find its token of the first start
        early = [pool.submit(agree_on_token, store, rank, 3, 20) for rank in (1, 2)]
        own = agree_on_token(store, 0, 3, 20)
        assert [future.result() for future in early] == [own, own]


def test_the_rank_that_is_absent_is_named() -> None:
    assert [str(error) for error in agreed(dist.HashStore(), 3, range(1, 3), 0.3)] == [
        "rank 0 has not joined the job",
        "rank 0 has not joined the job",
    ]
