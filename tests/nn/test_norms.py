"""Batch normalisation far from zero: digits that torch's loses are kept, and no number depends on the ranks."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fullgnn.config import Config
from fullgnn.distributed import Axis, World
from fullgnn.nn import BatchNorm
from fullgnn.schemes.block import Block
from fullgnn.schemes.row_exchange import ONE_RANK
from fullgnn.telemetry.meter import Meter
from tests.cases import config
from tests.schemes.training import prepare

MEANS = [0.0, 1.0, 30.0, 1e3, 1e4, 1e5, 1e6]
ALONE = Block(torch.arange(1), ranks=ONE_RANK)
"""A block of one process."""
CHANNELS = 6


def problem(mean: float, std: float, num_rows: int, seed: int = 0) -> dict[str, Tensor]:
    """Rows, gradients and parameters, float32; each column is at ``mean`` with its own sign and size."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    signs = torch.tensor([1.0, -1.0, 0.5, 1.0, -0.25, 1.0])
    x = mean * signs + std * drawn(num_rows, CHANNELS)
    return {"x": x, "grad": drawn(num_rows, CHANNELS), "weight": drawn(CHANNELS), "bias": drawn(CHANNELS)}


def results(norm: Any, given: dict[str, Tensor], dtype: torch.dtype, *block: Block) -> dict[str, Tensor]:
    """One training step of ``norm``: output, gradients and running statistics."""
    norm, x = norm.to(dtype), given["x"].to(dtype, copy=True).requires_grad_()
    with torch.no_grad():
        norm.weight.copy_(given["weight"])
        norm.bias.copy_(given["bias"])
    y = norm(x, *block)
    y.backward(given["grad"].to(dtype))
    tensors = {"y": y, "of_x": x.grad, "of_weight": norm.weight.grad, "of_bias": norm.bias.grad}
    tensors |= {"running_mean": norm.running_mean, "running_var": norm.running_var}
    return {name: tensor.detach().double() for name, tensor in tensors.items()}


@pytest.mark.parametrize("std", [1.0, 1e-2])
@pytest.mark.parametrize("mean", MEANS)
def test_no_number_is_further_from_the_truth_than_torchs(mean: float, std: float) -> None:
    """Where both are exact to the last bits, torch's may be nearer by one rounding."""
    for seed in range(3):
        given = problem(mean, std, 2_000, seed)
        exact = results(torch.nn.BatchNorm1d(CHANNELS), given, torch.float64)
        theirs = results(torch.nn.BatchNorm1d(CHANNELS), given, torch.float32)
        ours = results(BatchNorm(CHANNELS), given, torch.float32, ALONE)
        for name, expected in exact.items():
            error, allowed = ((tensors[name] - expected).abs().max().item() for tensors in (ours, theirs))
            size = max(expected.abs().max().item(), 0.1 * std if name == "running_mean" else 0)
            assert error <= max(allowed, 1.2e-7 * size), (name, seed, error, allowed)


def of_ranks(world: World, mean: float, dtype: torch.dtype, bounds: list[int]) -> dict[str, Any]:
    """The step with the rows ``bounds[rank]`` to ``bounds[rank + 1]`` on this rank, and what it has received."""
    given, own, meter = problem(mean, 1.0, bounds[-1]), slice(*bounds[world.rank : world.rank + 2]), Meter(world.device)
    ranks: Any = SimpleNamespace(gather_partial=Axis(world.group, meter).all_gather)
    block = Block(torch.arange(1), ranks=ranks)
    given = {name: tensor.to(world.device) for name, tensor in given.items()}
    given |= {name: given[name][own] for name in ("x", "grad")}
    tensors = results(BatchNorm(CHANNELS).to(world.device), given, dtype, block)
    return {name: tensor.cpu() for name, tensor in tensors.items()} | {"bytes": dict(meter.take().bytes_received)}


@pytest.mark.parametrize("mean", [0.0, 1e4, 1e6])
def test_no_number_depends_on_the_ranks(ranks, mean: float) -> None:
    """One rank has no rows, and one has a single row."""
    for num_ranks, bounds in ((2, [0, 700, 1000]), (4, [0, 0, 1, 640, 1000])):
        for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 5e-6)):
            expected = results(BatchNorm(CHANNELS), problem(mean, 1.0, 1000), dtype, ALONE)
            outcomes = ranks(num_ranks)(of_ranks, mean, dtype, bounds)
            joined = {name: torch.cat([rank[name] for rank in outcomes]) for name in ("y", "of_x")}
            joined |= {name: sum(rank[name] for rank in outcomes) for name in ("of_weight", "of_bias")}
            for name, value in joined.items():
                assert (value - expected[name]).abs().max() <= tolerance * expected[name].abs().max(), (name, dtype)
            for rank in outcomes:
                assert all(torch.equal(rank[name], outcomes[0][name]) for name in ("running_mean", "running_var"))
                assert (rank["running_mean"] - expected["running_mean"]).abs().max() <= tolerance * max(mean, 1)
                assert (rank["running_var"] - expected["running_var"]).abs().max() <= tolerance
                words = (3 * CHANNELS + 1) + 2 * CHANNELS  # one gather forward and one backward, in float64
                assert rank["bytes"] == {"gather": (num_ranks - 1) * 8 * words}


def of_replicas(world: World, cfg: Config) -> dict[str, np.ndarray]:
    """The statistics of rows that only the ids of the nodes determine, and the gradient of the weight, summed."""
    _, scheme, job = prepare(world, cfg, "symmetric")
    ids = job.graph.block.own_id
    given = problem(1e4, 1.0, 29)
    given = {name: tensor.to(ids.device) for name, tensor in given.items()}
    given |= {name: given[name][ids] for name in ("x", "grad")}
    tensors = results(BatchNorm(CHANNELS).to(ids.device), given, torch.float64, job.graph.block)
    total = {name: scheme.sum_over_rows(tensors[name].clone()) for name in ("of_weight", "of_bias")}
    total |= {name: tensors[name] for name in ("running_mean", "running_var")}
    rows = {name: scheme.gather(tensors[name]) for name in ("y", "of_x")}
    return {name: tensor.cpu().numpy() for name, tensor in (total | rows).items() if tensor is not None}


@pytest.mark.parametrize("split", ["true", "false"])
def test_a_row_that_several_replicas_hold_counts_once(ranks, split: str) -> None:
    keys = ["scheme=1.5d", "scheme.replication=2", f"scheme.split_rows={split}", "runtime.dtype=float64"]
    expected = results(torch.nn.BatchNorm1d(CHANNELS), problem(1e4, 1.0, 29), torch.float64)
    for rank in ranks(4)(of_replicas, config(*keys)):
        for name, array in rank.items():
            np.testing.assert_allclose(array, expected[name].numpy(), rtol=1e-9, atol=1e-9, err_msg=name)


def test_a_batch_norm_without_rows_or_with_one_row_is_finite() -> None:
    for num_rows in (0, 1):
        tensors = results(BatchNorm(CHANNELS), problem(1e4, 1.0, num_rows), torch.float32, ALONE)
        assert all(tensor.isfinite().all() for tensor in tensors.values()), num_rows
