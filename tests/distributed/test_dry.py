"""A dry run: one rank without the others, with collectives that move no data."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from fullgnn.config import Config
from fullgnn.distributed import Axis, CountingAxis, World, dry_world
from fullgnn.errors import UnsupportedError
from fullgnn.storage.record import RunRecord
from fullgnn.telemetry.meter import Meter
from fullgnn.train import run, run_on
from tests.cases import config


def test_a_rank_leaves_the_process_as_it_was() -> None:
    hook = sys.excepthook
    for rank in range(2):
        with dry_world(config().runtime, rank, 2) as world:
            assert (world.rank, world.size, world.dry) == (rank, 2, True)
            assert dist.get_rank() == rank
    assert not dist.is_initialized()
    assert sys.excepthook is hook  # else an error would name every rank of the dry runs


@pytest.mark.parametrize(("nproc", "expected"), [("null", 6), ("2", 2), ("6", 6), ("8", 6)])
def test_the_ranks_are_on_one_machine_unless_nproc_says_otherwise(nproc: str, expected: int) -> None:
    with dry_world(config(f"runtime.nproc={nproc}").runtime, 0, 6) as world:
        assert world.local_size == expected


def test_rows_that_other_ranks_ask_for_are_refused() -> None:
    ids = [torch.arange(3), torch.arange(2)]
    with dry_world(config().runtime, 0, 2) as world:
        for axis in (Axis(world.group, Meter(world.device)), CountingAxis(2, 0, Meter(world.device))):
            with pytest.raises(UnsupportedError, match=r"block\.fetch_rows\): leave out runtime\.dry_run"):
                axis.all_to_all(ids, "ids")


def recorded(world: World, cfg: Config) -> RunRecord:
    return run_on(world, cfg)


def test_a_dry_run_of_every_rank_records_what_the_job_records(ranks, tmp_path: Path) -> None:
    """The default job, whose ranks read each other's rows in shared memory."""
    cfg = config("dataset=karate", "train.epochs=2", "runtime.device=cpu", f"run_dir={tmp_path / 'job'}")
    job = ranks(6)(recorded, cfg)[0]
    if job.device != "cpu":
        pytest.skip("ranks on GPUs share no memory")
    for rank, expected in enumerate(job.ranks):
        (of_dry_run,) = run(replace(cfg, world_size=6, rank=rank, run_dir=str(tmp_path / f"rank{rank}"))).ranks
        for key in ("peak_tensor_bytes", "bytes_received", "nnz"):
            assert of_dry_run[key] == expected[key], (rank, key)
