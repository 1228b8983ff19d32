"""The judgement of how a job with a failing rank has ended."""

from pathlib import Path

import pytest

from fullgnn.bench.gpu.drill import ENDS_WITHIN_S, WAYS, drill_command, verdict
from tests.cases import config

FAILED = "epoch 2\nthe drill fails at 1000.5\nRuntimeError: the drill has raised this error on the last rank\n"


@pytest.mark.parametrize("way", WAYS)
def test_the_model_of_the_drill_is_known(way: str, tmp_path: Path) -> None:
    name, _ = WAYS[way]
    cfg = config(*drill_command(name, 2, "cuda", "gloo", tmp_path)[3:])
    assert cfg.model["_target_"].endswith(name) and cfg.runtime.nproc == 2


@pytest.mark.parametrize(
    ("output", "status", "after_s", "said"),
    [
        (FAILED, 1, 2.0, ""),
        (FAILED, 0, 2.0, "its status is 0"),
        (FAILED, 1, ENDS_WITHIN_S + 1, "it ended after 31 s"),
        (FAILED.replace("this error", "it"), 1, 2.0, "the reason is not in its output"),
        ("", 1, 2.0, "the drill did not take place; the reason is not in its output"),
    ],
)
def test_a_job_has_ended_well_or_not(output: str, status: int, after_s: float, said: str) -> None:
    check = verdict("raises an error", 4, WAYS["raises an error"][1], output, status, 1000.5 + after_s)
    assert check.passed == (not said) and check.said.startswith(said) and check.case.startswith("4 ranks")
    if output:
        assert check.case == f"4 ranks, ended after {after_s:.1f} s with status {status}"
