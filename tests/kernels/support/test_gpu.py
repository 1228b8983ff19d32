"""Which Triton the kernels need."""

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import pytest
import torch

from fullgnn.kernels.support import gpu


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    gpu.has_triton.cache_clear()
    yield
    gpu.has_triton.cache_clear()


@pytest.mark.parametrize("number", ["3.6.0", "3.7.1+git0123", "3.10.0", "4.0.0"])
def test_a_new_triton_is_used(number: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(gpu, "triton_version", lambda: number)
    assert gpu.runs_triton(torch.device("cuda")) and not caplog.records


@pytest.mark.parametrize("number", ["2.3.1", "3.2.0", "3.5.1+git0123"])
def test_an_old_triton_is_named_once_and_not_used(
    number: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(gpu, "triton_version", lambda: number)
    assert not gpu.runs_triton(torch.device("cuda")) and not gpu.has_triton()
    (said,) = (record.getMessage() for record in caplog.records)
    assert said.startswith(f"Triton {number} is too old")
    assert said.endswith("install torch 2.10 or later with its Triton")


def test_the_triton_of_this_environment_is_used() -> None:
    """Otherwise every test of a kernel for GPUs is skipped."""
    try:
        major, minor = version("triton").split(".")[:2]
    except PackageNotFoundError:
        pytest.skip("Triton is not installed")
    assert gpu.has_triton() == ((int(major), int(minor)) >= gpu.MIN_TRITON)


def test_without_triton_nothing_is_said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(gpu.importlib.util, "find_spec", lambda name: None)
    assert gpu.triton_version() == "" and not gpu.has_triton() and not caplog.records
