"""The checks of dense operations, of whole trainings and of memory: they pass what is right and find what is not."""

import numpy as np
import pytest
import torch

from fullgnn.bench.gpu import collectives, operations, sanitize
from fullgnn.bench.gpu.operations import (
    check_cross_entropy,
    check_dropout,
    check_epilogue,
    check_gradients,
    check_matmul,
)
from fullgnn.kernels.epilogue.apply import apply_epilogue_

CPU = torch.device("cpu")


def test_what_is_right_passes():
    checks = [*check_matmul(97, 20, 8, CPU), *check_cross_entropy(97, 8, CPU), *check_cross_entropy(97, 8, CPU, True)]
    checks += [*check_gradients(97, 20, 8, CPU), *check_dropout(97, 5, CPU), *check_epilogue(97, 5, CPU)]
    assert len(checks) == 11 and all(check.passed for check in checks), checks


def test_what_is_wrong_is_found(monkeypatch):
    """Each operation with one thing changed: a product of bfloat16, a mask that is off by a column, a loss in half."""

    def rounded(x, weight, epilogue):
        return apply_epilogue_(x.bfloat16().float() @ weight, epilogue)

    monkeypatch.setattr(operations, "matmul", rounded)
    assert not check_matmul(97, 20, 8, CPU)[0].passed

    def unmasked(x, g, output, scale, keep_masked):
        return x.t() @ g * scale, g.sum(0) * scale, g * scale

    monkeypatch.setattr(operations, "linear_gradients", unmasked)
    assert not any(check.passed for check in check_gradients(97, 20, 8, CPU))

    def drifting(x, g, output, scale, keep_masked):
        g = torch.where(output > 0, g * scale, 0)
        return x.t() @ g, torch.from_numpy(np.cumsum(g.numpy(), 0)[-1]), g

    monkeypatch.setattr(operations, "linear_gradients", drifting)
    gradient, sums, masked = check_gradients(100_000, 4, 3, CPU, level=True)
    assert masked.passed and not sums.passed

    monkeypatch.setattr(operations, "cross_entropy", lambda logits, labels, scale: (logits.sum(), logits))
    assert not any(check.passed for check in check_cross_entropy(97, 8, CPU))
    monkeypatch.setattr(operations, "dropout_", lambda x, *stream: x.mul_(2))
    assert not check_dropout(97, 5, CPU)[0].passed


def test_verdicts_of_compute_sanitizer():
    fine = "cases: csr ieee, dense operations\n========= ERROR SUMMARY: 0 errors\n"
    assert sanitize.verdict("memcheck", fine).passed
    found = sanitize.verdict(
        "memcheck", f"========= Invalid __global__ read of size 4 bytes\n{fine}".replace(": 0", ": 3")
    )
    assert not found.passed and "Invalid __global__ read" in found.said
    races = "cases: a\n========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n"
    assert not sanitize.verdict("racecheck", races).passed
    for unfinished in ("========= ERROR SUMMARY: 0 errors", "cases: a\n", "device not supported"):
        with pytest.raises(ValueError, match="did not finish"):
            sanitize.verdict("memcheck", unfinished)
    command = sanitize.command("compute-sanitizer", "racecheck")
    assert command[:3] == ["compute-sanitizer", "--tool", "racecheck"] and command[-1].endswith("sanitize")


@pytest.mark.gpu
def test_nccl_with_one_rank_on_a_gpu(tmp_path):
    import torch.distributed as dist

    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("nccl", store=store, rank=0, world_size=1)
    try:
        assert all(check.passed for check in collectives.check_captured(torch.device("cuda"), capture=True))
    finally:
        dist.destroy_process_group()
