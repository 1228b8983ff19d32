"""Fixtures of the tests of compiled kernels."""

from collections.abc import Iterator

import pytest

from tests.gpu_code.commands import stop_processes


@pytest.fixture(scope="module", autouse=True)
def processes_end() -> Iterator[None]:
    """The processes that compile serve the tests of one file."""
    yield
    stop_processes()
