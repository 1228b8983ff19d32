"""Fixtures that all rooms share."""

import os
from collections.abc import Callable, Iterator

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # read as Triton is imported; the ranks inherit it

from fullgnn.kernels.support import gpu  # noqa: E402
from tests.ranks import Ranks  # noqa: E402


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run every case of the large matrices, not a sample")


@pytest.hookimpl(tryfirst=True)  # before -m asks for the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave a sample of the large matrices, skip what needs a GPU, and mark what needs ranks."""
    if not config.getoption("--all"):
        seen: dict[str, int] = {}
        kept: list[pytest.Item] = []
        deselected: list[pytest.Item] = []
        for item in items:
            sample = item.get_closest_marker("sample")
            function = item.nodeid.partition("[")[0]
            number = seen[function] = seen.get(function, -1) + 1
            (kept if sample is None or number % sample.args[0] == 0 else deselected).append(item)
        config.hook.pytest_deselected(items=deselected)
        items[:] = kept
    # Files of tests that start commands take longest. They come first, so that no worker is left with one at the end.
    items.sort(key=lambda item: {"run_command", "ROOT"}.isdisjoint(dir(getattr(item, "module", None))))
    for item in items:
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():  # not a keyword: a folder has that name
            item.add_marker(pytest.mark.skip(reason="no CUDA device is visible"))
        if "ranks" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.ranks)


ON_GPUS = [pytest.param(backend, marks=pytest.mark.gpu) for backend in ("nccl", "gloo-cuda")]
BACKENDS = ["gloo", *(ON_GPUS if torch.cuda.is_available() else [])]


@pytest.fixture(scope="session", params=BACKENDS)
def ranks(request: pytest.FixtureRequest) -> Iterator[Callable[[int], Ranks]]:
    """``ranks(world_size)``: processes that have joined one job, kept for the whole session.

    Every test that uses it runs over gloo on the CPU and, where there is a GPU, over gloo with ranks that share it, and
    over NCCL where there are GPUs enough.
    """
    pools: dict[int, Ranks] = {}

    def get(world_size: int) -> Ranks:
        if request.param == "nccl" and world_size > torch.cuda.device_count():
            pytest.skip(f"NCCL wants {world_size} GPUs, {torch.cuda.device_count()} are visible")
        if world_size not in pools or not pools[world_size].alive:
            pools[world_size] = Ranks(world_size, request.param)
        return pools[world_size]

    yield get
    for pool in pools.values():
        pool.stop()


@pytest.fixture
def every_case(request: pytest.FixtureRequest) -> bool:
    """Whether a test goes through all values of its loops, and not only through a sample of them."""
    return request.config.getoption("--all")


@pytest.fixture
def triton_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no GPU is visible, kernels in Triton are used on the CPU, by its interpreter; see ``triton_device.py``."""
    monkeypatch.setattr(gpu, "INTERPRETED", not torch.cuda.is_available())


@pytest.fixture(autouse=True)
def torch_threads() -> Iterator[None]:
    """A test may set the number of threads; the next one has that of before."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
