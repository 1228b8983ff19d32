"""Fixtures that all rooms share."""

from collections.abc import Callable, Iterator

import pytest
import torch

from tests.ranks import Ranks


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="no CUDA device is visible"))


@pytest.fixture(scope="session")
def ranks() -> Iterator[Callable[..., Ranks]]:
    """``ranks(world_size)``: processes that have joined one job, kept for the whole session."""
    pools: dict[tuple[int, str], Ranks] = {}

    def get(world_size: int, backend: str = "gloo") -> Ranks:
        key = (world_size, backend)
        if key not in pools or not pools[key].alive:
            pools[key] = Ranks(world_size, backend)
        return pools[key]

    yield get
    for pool in pools.values():
        pool.stop()
