"""Float32 products of a run have all digits, whatever the process has chosen, and the process keeps its choice."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
import torch

from fullgnn.distributed import dry_world, full_precision, init_world, joining, world_of_one
from fullgnn.distributed.guest import as_guest
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
from fullgnn.distributed.precision import full_precision
{given}
with full_precision():
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
    with full_precision(), full_precision():
        assert torch.get_float32_matmul_precision() == "highest"
    assert torch.get_float32_matmul_precision() == before
