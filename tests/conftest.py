"""Fixtures that all rooms share."""

import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import cache
from types import ModuleType
from typing import Any
from zlib import crc32

import pytest

import fullgnn  # noqa: F401  # isort: skip  # before torch: it sets how the threads of torch wait
import torch

# A shell starts a suite in its background with some signals ignored, and processes of the tests would inherit that.
for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT):
    signal.signal(number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # Triton reads it on import; the ranks inherit it

from fullgnn.engine.command import TrainingCommand  # noqa: E402
from fullgnn.kernels.support import gpu  # noqa: E402
from tests.ranks import Ranks  # noqa: E402
from tests.samples import sample_offset  # noqa: E402


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run every case of the large matrices, not a sample")


SAMPLE = pytest.StashKey[tuple[int, int]]()
"""How many cases run, and how many run only with ``--all``."""


@pytest.hookimpl(tryfirst=True)  # before -m selects by marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep a sample of the large matrices, skip tests that lack a GPU, and mark tests that need ranks."""
    for item in items:
        # The mark, not the keyword: a folder is named gpu.
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="no CUDA device is visible"))
        if "ranks" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.ranks)
    deselected: list[pytest.Item] = []
    if not config.getoption("--all"):
        seen: dict[str, int] = {}
        kept: list[pytest.Item] = []
        offset = sample_offset()
        for item in items:
            sample = item.get_closest_marker("sample")
            function = item.nodeid.partition("[")[0]
            every, begin = (1, function) if sample is None else (*sample.args, function)[:2]
            # Each test begins elsewhere, or the same commits would run all that is rare.
            number = seen[function] = seen.get(function, crc32(begin.encode())) + 1
            (kept if every and number % every == offset % every else deselected).append(item)
        config.hook.pytest_deselected(items=deselected)
        items[:] = kept
    # Test files that start commands take longest. They come first, so that no worker starts such a file at the end.
    items.sort(key=lambda item: not _starts_commands(getattr(item, "module", None)))
    with_ranks = {"ranks": True, "not ranks": False}.get(config.getoption("markexpr"))
    of_this_half = [
        sum(with_ranks in (None, item.get_closest_marker("ranks") is not None) for item in some)
        for some in (items, deselected)
    ]
    config.stash[SAMPLE] = of_this_half[0], of_this_half[1]


def pytest_collection_finish() -> None:
    """Many calls end with a search for garbage among all objects of their process: it leaves out the tests."""
    gc.collect()
    gc.freeze()


@cache
def _starts_commands(module: ModuleType | None) -> bool:
    """Whether ``module``, or a module of helpers that it imports from, runs commands."""
    sources = {getattr(value, "__module__", None) for value in vars(module).values()} if module else set()
    modules = [module, *(sys.modules[name] for name in sources if str(name).startswith("tests."))]
    return any(not {"run_command", "ROOT"}.isdisjoint(dir(source)) for source in modules)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):  # a worker of pytest-xdist tells the process that reports
        session.config.workeroutput["sample"] = session.config.stash.get(SAMPLE, (0, 0))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what a worker of pytest-xdist tells; all workers have the same tests."""
    if "sample" in getattr(node, "workeroutput", {}):
        node.config.stash[SAMPLE] = tuple(node.workeroutput["sample"])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    num_cases, num_left = config.stash.get(SAMPLE, (0, 0))
    if num_left:
        terminalreporter.write_line(
            f"{num_cases} of {num_cases + num_left} cases (sample {sample_offset()}), {num_left} only with --all"
        )


ON_GPUS = [pytest.param(backend, marks=pytest.mark.gpu) for backend in ("nccl", "gloo-cuda")]
BACKENDS = ["gloo", *(ON_GPUS if torch.cuda.is_available() else [])]


@pytest.fixture(scope="session", params=BACKENDS)
def ranks(request: pytest.FixtureRequest) -> Iterator[Callable[[int], Ranks]]:
    """``ranks(world_size)``: processes that have joined one job, kept for the whole session.

    Every test with this fixture runs over gloo on the CPU. Where a GPU is visible, the test also runs over gloo with
    ranks that share the GPU and, if every rank can have a GPU of its own, over NCCL.
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


FAULTS = pytest.StashKey[list[str]]()
"""What was wrong in the launches of a test."""


@pytest.fixture
def triton_on_cpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run Triton kernels on the CPU, by Triton's interpreter, where no GPU is visible; see ``triton_device.py``.

    Every launch is watched (``launches/``), and a fault in one fails the test.
    """
    monkeypatch.setattr(gpu, "INTERPRETED", not torch.cuda.is_available())
    if not (gpu.INTERPRETED and gpu.has_triton()):
        yield
        return
    from tests.launches.watch import watched

    with watched() as request.node.stash[FAULTS]:
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    try:
        yield
    finally:  # also where the test fails: a fault explains wrong numbers
        if faults := item.stash.get(FAULTS, []):
            pytest.fail("\n".join(faults), pytrace=False)


@pytest.fixture(autouse=True)
def torch_threads() -> Iterator[None]:
    """Restore torch's number of threads after a test, which may have set another."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The overrides of runs that would take place in other processes; none of them begins."""
    started: list[list[str]] = []
    monkeypatch.setattr(TrainingCommand, "start", lambda self, cfg, overrides, fork=False: started.append(overrides))
    return started


@pytest.fixture(autouse=True)
def log_of_the_package() -> Iterator[None]:
    """A command that a test runs in this process sends the package's log to the stderr of that moment. The next test
    finds the logger as it was."""
    package = logging.getLogger("fullgnn")
    before = package.handlers, package.level, package.propagate
    yield
    package.handlers, package.level, package.propagate = before
