"""Which Triton the kernels need."""

from collections.abc import Iterator

import pytest
import torch

from fullgnn.kernels.support import gpu


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    gpu.has_triton.cache_clear()
    yield
    gpu.has_triton.cache_clear()


@pytest.mark.parametrize("version", ["3.6.0", "3.7.1+git0123", "3.10.0", "4.0.0"])
def test_a_new_triton_is_used(version: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(gpu, "triton_version", lambda: version)
    assert gpu.runs_triton(torch.device("cuda")) and not caplog.records


@pytest.mark.parametrize("version", ["2.3.1", "3.2.0", "3.5.1+git0123"])
def test_an_old_triton_is_named_once_and_not_used(
    version: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(gpu, "triton_version", lambda: version)
    assert not gpu.runs_triton(torch.device("cuda")) and not gpu.has_triton()
    (said,) = (record.getMessage() for record in caplog.records)
    assert said.startswith(f"Triton {version} is too old")
    assert said.endswith("install torch 2.10 or later with its Triton")


def test_without_triton_nothing_is_said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(gpu.importlib.util, "find_spec", lambda name: None)
    assert gpu.triton_version() == "" and not gpu.has_triton() and not caplog.records
