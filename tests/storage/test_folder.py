"""A folder that holds a run or a sweep is refused, and replacing it removes what runs write and nothing else."""

from pathlib import Path

import pytest

from fullgnn.errors import ConfigError
from fullgnn.storage.folder import check_folder, jobs_beside, prepare_sweep
from fullgnn.storage.record import RunFolder
from tests.storage.files import files

RUN = (
    "config.yaml",
    "record.json",
    "epochs.jsonl",
    "structure.npz",
    "predictions.npz",
    "predictions.parquet",
    "predictions.csv",
    "tensorboard/events.out.tfevents.1.host.2.0",
    "checkpoints/epoch_000100/shard",
)
UNFINISHED = (
    f".record.{'0af' * 10}00.json",
    f".predictions.{'0' * 32}.npz",
    "checkpoints/.epoch_000200/shard",
    f"checkpoints/.epoch_000200.{'0' * 32}/shard",
)
OWN = (
    "predictions_mine.npz",
    "record.json.bak",
    ".foo.json",
    ".record.json",
    f".notes.{'0' * 32}.json",
    f".record.{'0' * 32}.npz",
    "structure_plot.npz",
    "report.html",
    "tensorboard.txt",
    "plots/record.json",
)
OWN_BESIDE = ("checkpoints/notes.txt", "checkpoints/epoch_100/shard", "checkpoints/my_epoch_000100/shard")


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


@pytest.mark.parametrize("name", RUN)
def test_every_file_of_a_run_is_refused(tmp_path: Path, name: str) -> None:
    touch(tmp_path, name, *OWN)
    before = files(tmp_path)
    with pytest.raises(ConfigError) as refused:
        RunFolder(str(tmp_path), "")
    resume = " overwrite=true to replace it, or resume=auto to continue it"
    cures = resume if name.startswith("checkpoints") else " or overwrite=true to replace it"
    holds = f"run_dir={tmp_path} holds an earlier run ({name.partition('/')[0]}): choose another run_dir,"
    assert str(refused.value) == holds + cures
    check_folder(tmp_path, overwrite=True)
    assert files(tmp_path) == before


def test_only_what_runs_write_is_removed(tmp_path: Path) -> None:
    touch(tmp_path, *RUN, *UNFINISHED, *OWN)
    RunFolder(str(tmp_path), "seed: 1", overwrite=True)
    assert files(tmp_path) == {*OWN, "config.yaml", "epochs.jsonl"}
    assert not (tmp_path / "checkpoints").exists() and not (tmp_path / "tensorboard").exists()
    assert (tmp_path / "config.yaml").read_text() == "seed: 1"


def test_what_is_beside_checkpoints_stays(tmp_path: Path) -> None:
    touch(tmp_path, *RUN, *OWN_BESIDE)
    (tmp_path / "elsewhere").mkdir()
    touch(tmp_path / "elsewhere", "shard")
    (tmp_path / "checkpoints" / "epoch_000300").symlink_to(tmp_path / "elsewhere")
    RunFolder(str(tmp_path), "", overwrite=True)
    assert files(tmp_path) == {*OWN_BESIDE, "elsewhere/shard", "config.yaml", "epochs.jsonl"}
    assert (tmp_path / "checkpoints" / "epoch_000300").is_symlink()


def test_a_folder_of_the_users_own_files_is_taken_as_it_is(tmp_path: Path) -> None:
    touch(tmp_path, *OWN, *OWN_BESIDE)
    (tmp_path / "tensorboard").mkdir()
    check_folder(tmp_path / "missing")
    RunFolder(str(tmp_path), "", overwrite=True)
    assert files(tmp_path) == {*OWN, *OWN_BESIDE, "config.yaml", "epochs.jsonl"}
    assert (tmp_path / "tensorboard").exists()


def test_a_resumed_run_needs_a_checkpoint_or_an_unfinished_run(tmp_path: Path) -> None:
    touch(tmp_path, "config.yaml", "epochs.jsonl")
    check_folder(tmp_path, resuming=True)
    touch(tmp_path, "record.json")
    with pytest.raises(ConfigError, match="choose another run_dir, or overwrite=true"):
        check_folder(tmp_path, resuming=True)
    touch(tmp_path, "checkpoints/epoch_000100/shard")
    check_folder(tmp_path, resuming=True)


@pytest.mark.parametrize(("names", "holds"), [(["sweep.csv"], "sweep.csv"), (["0/mine", "12/epochs.jsonl"], "12")])
def test_an_earlier_sweep_is_refused(tmp_path: Path, names: list[str], holds: str) -> None:
    touch(tmp_path, *names)
    with pytest.raises(ConfigError) as refused:
        prepare_sweep(tmp_path)
    cures = "choose another run_dir, overwrite=true to replace it, or resume=auto to continue it"
    assert str(refused.value) == f"run_dir={tmp_path} holds an earlier sweep ({holds}): {cures}"
    assert files(tmp_path) == set(names)


def test_a_long_sweep_is_refused_in_a_short_line(tmp_path: Path) -> None:
    touch(tmp_path, "sweep.csv", *(f"{job}/config.yaml" for job in range(12)))
    with pytest.raises(ConfigError, match=r"earlier sweep \(sweep.csv, 0, 1, 2, 3, 4, \.\.\.\): "):
        prepare_sweep(tmp_path)


def test_all_jobs_of_an_earlier_sweep_are_removed(tmp_path: Path) -> None:
    jobs = [f"{job}/{name}" for job in (0, 1, 10) for name in RUN]
    own = ("1/notes.txt", "01/config.yaml", "mine/config.yaml", "sweep_mine.csv", "config.yaml")
    touch(tmp_path, "sweep.csv", f".sweep.{'0' * 32}.csv", *jobs, *own)
    (tmp_path / "2").mkdir()  # of a job that failed before its ranks started
    prepare_sweep(tmp_path, overwrite=True)
    assert files(tmp_path) == set(own)
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"1", "01", "mine"}


def test_jobs_of_an_earlier_and_longer_sweep_are_found(tmp_path: Path) -> None:
    touch(tmp_path, *(f"{job}/record.json" for job in (0, 1, 2, 10)), "3/mine.csv", "mine/record.json")
    assert jobs_beside(tmp_path, {0, 1}) == ["2", "10"]
    assert jobs_beside(tmp_path / "missing", {0}) == []


def test_a_new_folder_needs_nothing(tmp_path: Path) -> None:
    for overwrite in (False, True):
        prepare_sweep(tmp_path / "missing", overwrite)
    touch(tmp_path, "2023/notes.txt", "3/mine.csv")
    prepare_sweep(tmp_path)
    assert files(tmp_path) == {"2023/notes.txt", "3/mine.csv"}
