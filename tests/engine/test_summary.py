"""The closing table of a run: eight rows, or all measurements."""

import re
from dataclasses import MISSING, fields, replace

import pytest

from fullgnn.engine.cuda_graph import REPLAYED
from fullgnn.engine.summary import closing_table
from fullgnn.sampling.summary import sampling_table
from fullgnn.storage.record import RunRecord

RECORD = RunRecord(
    **{field.name: 1 for field in fields(RunRecord) if field.default is field.default_factory is MISSING}
    | {"dataset": "karate", "model": "gcn", "scheme": "1d", "reorder": "none", "reorder_scope": "block"}
    | {"device": "cpu", "cuda_graph": "no: the device is a CPU", "dry_run_rank": None, "world_size": 2, "epochs": 20}
    | {"epoch_time_ms": {"median": 2.95, "p20": 2.0, "p80": 3.0}, "best_epoch": 18}
    | {"spmm_time_ms": 0.46, "comm_time_ms": 0.56, "dense_time_ms": 1.5, "other_time_ms": 0.26}
    | {"comm_bytes_per_epoch": {"all_reduce": 5000.0, "exchange": 120_000.0}, "comm_hidden": None}
    | {"edge_cut": 0.25, "needed_row_ratio": 0.5, "tile_density": {"0-1": 0.75, "1-3": 0.25}, "nnz_imbalance": 1.0}
    | {"peak_memory_bytes": 4e8, "peak_memory_bytes_per_rank": [4e8, 3e8], "peak_tensor_bytes": 2e6}
    | {"metrics": {f"{split}_accuracy": value for split, value in (("train", 0.9), ("val", 0.8), ("test", 0.7))}}
)


def cells(table: str) -> dict[str, list[str]]:
    """The cells of each row beside the first one, by the first one."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line[0] == "|"][2:]
    return {row[0]: row[1:] for row in rows}


def shares(rows: dict[str, list[str]]) -> list[int]:
    return [int(match[1]) for row in rows.values() if (match := re.fullmatch(r"(\d+) %", row[-1]))]


def test_a_run_closes_with_eight_rows() -> None:
    table = closing_table(RECORD)
    assert table.splitlines()[0] == "karate, 1 nodes, 1 non-zeros; gcn, 1d, p=2 r=1, none (block)"
    assert cells(table) == {
        "epoch, median of 19": ["2.95 ms"],
        "SpMM": ["17 %"],
        "communication (exposed)": ["20 %"],
        "dense": ["54 %"],
        "other": ["9 %"],
        "received per rank and epoch": ["125.00 kB"],
        "peak memory, largest rank": ["400.00 MB"],
        "test accuracy at epoch 18 (best validation)": ["70.00 %"],
    }
    assert sum(shares(cells(table))) == 100


@pytest.mark.parametrize(
    ("metrics", "last_row", "value"),
    [
        ({"val_mrr": 0.5, "test_mrr": 0.25, "val_hits@10": 1.0}, "test mrr at epoch 18 (best validation)", "0.2500"),
        ({"val_accuracy": None, "test_accuracy": 0.7}, "test accuracy at epoch 18", "70.00 %"),
        ({"val_r2": 0.8, "test_r2": None}, "validation r2 at epoch 18 (best validation)", "0.8000"),
        ({}, "test accuracy at epoch 18", "-"),
    ],
)
def test_the_last_row_is_the_first_metric_at_the_best_epoch(metrics: dict, last_row: str, value: str) -> None:
    rows = cells(closing_table(replace(RECORD, metrics=metrics)))
    assert len(rows) == 8 and list(rows.items())[-1] == (last_row, [value])


def test_the_memory_of_a_run_on_gpus_is_that_of_its_tensors() -> None:
    rows = cells(closing_table(replace(RECORD, device="cuda")))
    assert len(rows) == 8 and rows["peak GPU memory, largest rank"] == ["2.00 MB"]


def test_the_full_table_has_all_measurements() -> None:
    table = closing_table(RECORD, full=True)
    rows = cells(table)
    assert rows["SpMM"] == ["0.46 ms", "17 %"] and rows["other"] == ["0.26 ms", "9 %"]
    assert rows["received per rank and epoch, exchange"] == ["120.00 kB", ""]
    assert rows["edge cut"] == ["25.00 %", ""] and rows["needed rows"] == ["50.00 %", ""]
    assert rows["non-zeros in 32 x 32 tiles filled 1-3 %"] == ["", "25.00 %"]
    assert rows["peak memory, rank 1"] == ["300.00 MB", ""] and rows["validation (best)"] == ["80.00 %", ""]
    assert sum(shares(rows)) == 100


def test_what_was_not_measured_is_a_dash() -> None:
    rows = cells(closing_table(replace(RECORD, edge_cut=None, needed_row_ratio=None, tile_density=None), full=True))
    assert rows["edge cut"] == rows["needed rows"] == rows["communication hidden"] == ["-", ""]
    assert rows["non-zeros by density of 32 x 32 tiles"] == ["", "-"]


@pytest.mark.parametrize("full", [False, True])
def test_a_dry_run_names_its_rank_and_has_no_accuracy(full: bool) -> None:
    dry = replace(RECORD, dry_run_rank=3, world_size=8, peak_memory_bytes_per_rank=[4e8], metrics={})
    table = closing_table(dry, full)
    assert table.startswith("rank 3 of 8, simulated: karate, ") and "accuracy" not in table
    rows = cells(table)
    assert "validation (best)" not in rows and "test" not in rows
    assert ("peak memory, rank 3" if full else "peak tensor memory, rank 3") in rows
    assert full or len(rows) == 7


def test_nothing_left_to_train_has_no_shares() -> None:
    none = dict.fromkeys(("spmm_time_ms", "comm_time_ms", "dense_time_ms", "other_time_ms"), 0.0)
    rows = cells(closing_table(replace(RECORD, **none, epoch_time_ms={"median": 0.0}, resumed_after=20)))
    assert rows["epoch, median of 1"] == ["0.00 ms"] and rows["SpMM"] == rows["other"] == ["-"]


def test_replayed_epochs_have_the_phases_of_others() -> None:
    rows = cells(closing_table(replace(RECORD, cuda_graph=REPLAYED)))
    assert "epoch, median of 16 replayed" in rows and sum(shares(rows)) == 100


STEPS = {"sample": 2, "gather": 1, "pack": 0, "load": 1, "forward": 2, "backward": 2, "comm": 1, "update": 0.5}


@pytest.mark.parametrize(
    ("wait", "first", "percentages"),
    [(0.0, "making batches", [40, 40, 10, 10]), (1.0, "waiting for batches", [20, 40, 10, 30])],
)
def test_sampled_training_closes_with_eight_rows(wait: float, first: str, percentages: list[int]) -> None:
    sampling = {"sampler": {"name": "neighbor"}, "time_ms": STEPS | {"wait": wait}, "num_batches": 7}
    sampling |= dict.fromkeys(("sampled_edges", "input_rows", "fetched_bytes", "hit_rate", "filled_bytes"), 1.0)
    record = replace(RECORD, sampling=sampling, epoch_time_ms={"median": 10.0})
    rows = cells(sampling_table(record))
    assert list(rows) == [
        "epoch, median of 19",
        first,
        "forward and backward",
        "communication",
        "update and other",
        "batches of an epoch",
        "peak memory, largest rank",
        "test accuracy at epoch 18 (best validation)",
    ]
    assert shares(rows) == percentages
    full = cells(sampling_table(record, full=True))
    assert sum(shares(full)) == 100 and "drawn edges of an epoch" in full
    assert ("sample, in the workers meanwhile" in full) == (wait > 0)
    assert full["rows that were on the device"][0] == "100.0 %" and "features that the cache changed" in full
    without = cells(sampling_table(replace(record, sampling=sampling | {"hit_rate": 0.0}), full=True))
    assert not {"rows that were on the device", "features that the cache changed"} & {*without}
