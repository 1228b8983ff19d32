"""Float32 products of a run have all digits, whatever the process has chosen, and the process keeps its choice."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch

from fullgnn.distributed import dry_world, init_world, joining, mesh, product_precision, world_of_one
from fullgnn.distributed.guest import as_guest
from fullgnn.errors import ConfigError
from tests.cases import config
from tests.commands import ROOT

RUNTIME = config("runtime.device=cpu").runtime

ENTERED: dict[str, Callable[[], AbstractContextManager]] = {
    "a rank": lambda: init_world(RUNTIME),
    "a world of one": lambda: world_of_one(RUNTIME),
    "a dry run": lambda: dry_world(RUNTIME, 0, 2),
    "a guest": lambda: as_guest(RUNTIME, 0),
}


@pytest.mark.parametrize("name", ENTERED)
def test_products_of_a_run_are_not_in_tf32(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "job_store", lambda use, timeout_s: torch.distributed.HashStore())
    for variable, value in {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(variable, value)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        assert torch.backends.cuda.matmul.allow_tf32
        with ENTERED[name]():
            assert torch.get_float32_matmul_precision() == "highest"
            assert not torch.backends.cuda.matmul.allow_tf32
        assert torch.get_float32_matmul_precision() == "high" and torch.backends.cuda.matmul.allow_tf32
        with pytest.raises(ZeroDivisionError), ENTERED[name]():
            raise ZeroDivisionError
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)


SCRIPT = """
import torch
from fullgnn.distributed.mesh import product_precision
{given}
with product_precision():
    assert torch.backends.cuda.matmul.fp32_precision == "ieee" and not torch.backends.cuda.matmul.allow_tf32
assert torch.backends.cuda.matmul.fp32_precision == "tf32"
"""


@pytest.mark.sample(2)
@pytest.mark.skipif(not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="this torch has one setting")
@pytest.mark.parametrize(
    ("variables", "given"),
    [
        ({"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"}, ""),
        ({}, 'torch.backends.cuda.matmul.fp32_precision = "tf32"'),
    ],
    ids=["by the environment", "by an attribute"],
)
def test_who_has_asked_for_tf32_otherwise(variables: dict[str, str], given: str) -> None:
    """Torch reads the variable once, so each case has a process of its own."""
    command = [sys.executable, "-c", SCRIPT.format(given=given)]
    environ = {**os.environ, **variables}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_blocks_may_be_nested() -> None:
    before = torch.get_float32_matmul_precision()
    with product_precision(), product_precision():
        assert torch.get_float32_matmul_precision() == "highest"
    assert torch.get_float32_matmul_precision() == before


def test_a_run_may_ask_for_tf32_and_the_process_keeps_its_own_setting() -> None:
    before = torch.get_float32_matmul_precision()
    with product_precision("tf32"):
        assert torch.get_float32_matmul_precision() == "high" and torch.backends.cuda.matmul.allow_tf32
    assert torch.get_float32_matmul_precision() == before


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["runtime.device=cpu"], "is for GPUs, and this run has cpu and float32: leave it out"),
        (
            ["runtime.device=cuda", "runtime.dtype=float64"],
            "rounds products of float32, and this run has cuda and float64",
        ),
    ],
)
def test_tf32_has_an_effect_or_is_refused(keys: list[str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    _, _, problem = mesh.resolve(config(*keys, "runtime.backend=gloo", "runtime.precision=tf32").runtime)
    assert isinstance(problem, ConfigError) and said in str(problem)
    _, _, problem = mesh.resolve(
        config("runtime.device=cuda", "runtime.backend=gloo", "runtime.precision=tf32").runtime
    )
    assert problem is None
