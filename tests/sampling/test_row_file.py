"""Rows in a file: the same training as with rows in memory, on any machine, and nothing damaged is read."""

import logging
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch

from fullgnn.codecs import BFloat16, Codec, Features, Unencoded
from fullgnn.distributed import World, world_of_one
from fullgnn.errors import ConfigError
from fullgnn.prepare.source import Preparation
from fullgnn.sampling import row_file
from fullgnn.sampling.row_file import RowFiles
from fullgnn.sampling.setup import set_up_sampled
from fullgnn.storage import arrays
from fullgnn.storage.cache import Cache
from fullgnn.telemetry.meter import Meter
from tests.cases import minibatch_config
from tests.sampling.features import Counted
from tests.sampling.training import MODELS, case, run, same

CODECS = {"none": [], "bfloat16": ["codec=bfloat16"], "learns": ["codec._target_=tests.sampling.test_features.Counted"]}
FEATURES = np.random.default_rng(0).normal(size=(1000, 5)).astype(np.float32)


@pytest.mark.sample(6)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kept", [True, False])
def test_losses_are_those_of_rows_in_memory(
    ranks,
    tmp_path: Path,
    graph_files: dict[str, Path],
    codec: str,
    kept: bool,
) -> None:
    keys = [*MODELS["sage"], *CODECS[codec], "runtime.dtype=float32"]
    mapped = ["loader.map_features=true", *([f"runtime.cache_dir={tmp_path}/kept"] if kept else [])]
    for size in (1, 2):
        plain = ranks(size)(run, case(graph_files["directed"], tmp_path / f"plain{size}", *keys))[0]
        for name, more in {
            "alone": [],
            "workers": ["loader.num_workers=2"],
            "cached": ["cache=exact", "cache.megabytes=1e-4"],
        }.items():
            cfg = case(graph_files["directed"], tmp_path / f"{name}{size}", *keys, *mapped, *more)
            same(ranks(size)(run, cfg)[0], plain, 0)  # to the bit
    if kept:
        assert sorted(file.suffix for file in (tmp_path / "kept" / "encoded").iterdir()) == [".npy", ".npz"]


def rows_of(
    world: World, local_size: int, kept: str | None, temporary: str, codec: Codec, sees_all: bool
) -> tuple[np.ndarray, bool]:
    """What a rank maps where ``local_size`` ranks share a machine, which sees only the files of its own, and whether it
    may write to that."""
    files = RowFiles(Cache(kept), {"name": "mine"})
    near = world.rank < local_size
    with (
        files,
        mock.patch.object(arrays, "_BLOCK", 256),
        mock.patch.object(tempfile, "tempdir", temporary),
        mock.patch.object(row_file, "_sees", lambda path: near or sees_all),
    ):
        if world.rank == 0:
            files.write(codec, Features(FEATURES, "float32"))
        rows = files.share(replace(world, local_size=local_size))
    return rows.copy(), rows.flags.writeable


@pytest.mark.sample(3)
@pytest.mark.parametrize("local_size", [1, 2, 4])
@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("codec", [Unencoded(), BFloat16(), Counted()], ids=["none", "bfloat16", "learns"])
def test_every_machine_has_the_rows(ranks, tmp_path: Path, local_size: int, kept: bool, codec: Codec) -> None:
    expected, (temporary, folder) = codec.encode(FEATURES), (tmp_path / "temporary", tmp_path / "kept")
    temporary.mkdir()
    for sees_all in (False, True):
        results = ranks(4)(rows_of, local_size, str(folder) if kept else None, str(temporary), codec, sees_all)
        for rows, writable in results:
            assert rows.dtype == expected.dtype and not writable
            np.testing.assert_array_equal(rows, expected)
        assert not [*temporary.iterdir()]


def full_disk(world: World, failing: int) -> str:
    """What each rank says if the disk of the machine of rank ``failing`` is full in the midst of the file."""
    files, write = RowFiles(Cache(None), {}), arrays.write_npy

    def fill(file: Path, some: arrays.SomeRows) -> tuple[int, int]:
        if world.rank == failing:
            some[next(arrays.row_blocks(some))]
            raise OSError(28, "No space left on device")
        return write(file, some)

    near = world.rank < 2
    with (
        files,
        mock.patch.object(arrays, "_BLOCK", 256),
        mock.patch.object(row_file, "write_npy", fill),
        mock.patch.object(row_file, "_sees", lambda path: near),
    ):
        try:
            if world.rank == 0:
                files.write(Unencoded(), Features(FEATURES, "float32"))
            files.share(replace(world, local_size=2))
        except ConfigError as error:
            return str(error)
    return ""


def test_a_full_disk_is_one_line_on_every_rank(ranks, tmp_path: Path) -> None:
    told = ranks(4)(full_disk, 2)
    assert len({*told}) == 1 and told[0].startswith("TMPDIR=") and "(No space left on device)" in told[0]
    with mock.patch.object(row_file, "write_npy", side_effect=OSError(28, "No space left on device")):
        for folder, name in ((None, "TMPDIR"), (str(tmp_path), "runtime.cache_dir")):
            with (
                RowFiles(Cache(folder), {}) as files,
                pytest.raises(ConfigError, match=f"^{name}=.* cannot be written"),
            ):
                files.write(Unencoded(), Features(FEATURES, "float32"))


def test_a_kept_file_is_checked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def written(features: np.ndarray = FEATURES, keys: str = "mine", dtype: str = "float32") -> tuple[np.ndarray, dict]:
        with RowFiles(Cache(str(tmp_path)), {"name": keys}) as files:
            return files.write(Counted(), Features(features, dtype))

    Counted.encodings = 0
    first = written()
    assert Counted.encodings == 1
    for rows, state in (written(), written()):
        np.testing.assert_array_equal(rows, first[0])
        np.testing.assert_array_equal(state["step"], first[1]["step"])
    assert Counted.encodings == 1
    written(FEATURES + 1)
    written(keys="another")
    written(dtype="float64")
    assert Counted.encodings == 4 and not caplog.records
    for damage in ("bit", "end", "file", "about"):
        for file in (tmp_path / "encoded").iterdir():
            content = bytearray(file.read_bytes())
            if file.suffix == ".npz" and damage == "about":
                del content[-30:]
            elif file.suffix == ".npy" and damage == "bit":
                content[-7] ^= 1
            elif file.suffix == ".npy" and damage == "end":
                del content[-7:]
            elif file.suffix == ".npy" and damage == "file":
                file.unlink()
                continue
            file.unlink()  # what is mapped stays
            file.write_bytes(content)
        caplog.clear()
        Counted.encodings = 0
        again = written()
        np.testing.assert_array_equal(again[0], first[0])
        assert Counted.encodings == 1 and len(caplog.records) == 1
        assert caplog.records[0].levelno == logging.WARNING and "cannot be read" in caplog.text
        written(FEATURES + 1), written(keys="another"), written(dtype="float64")


def test_a_codec_that_encodes_rows_gets_some_at_a_time(tmp_path: Path) -> None:
    class Watched(BFloat16):
        most = 0

        def encode(self, features: np.ndarray) -> np.ndarray:
            self.most = max(self.most, len(features))
            return super().encode(features)

    class AllAtOnce(Watched):
        by_rows = False

    for codec, most in ((Watched(), 25), (AllAtOnce(), 1000)):
        with mock.patch.object(arrays, "_BLOCK", 250), RowFiles(Cache(None), {}) as files:
            rows, _ = files.write(codec, Features(FEATURES, "float64"))
        assert codec.most == most
        np.testing.assert_array_equal(rows, BFloat16().encode(FEATURES.astype(np.float64)))


LIMITED = """
import resource, sys
from pathlib import Path
import numpy as np, torch
from fullgnn.codecs import BFloat16, Features
from fullgnn.sampling.features import FeatureSource
from fullgnn.sampling.row_file import RowFiles
from fullgnn.storage.cache import Cache

torch.set_num_threads(1)
features = np.load(sys.argv[1], mmap_mode="r")
used = next(int(l.split()[1]) for l in Path("/proc/self/status").read_text().splitlines() if l.startswith("VmData"))
limit = used * 1024 + (64 << 20)
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))  # of memory that the process writes to
if sys.argv[2] == "memory":
    BFloat16().encode(features)
for folder in (None, sys.argv[3], sys.argv[3]):
    with RowFiles(Cache(folder), {}) as files:
        rows, _ = files.write(BFloat16(), Features(features, "float32"))
    found = FeatureSource(rows, torch.device("cpu")).gather(np.array([0, 77, len(rows) - 1]))
    assert torch.equal(found.view(torch.bfloat16).float()[:, 0], torch.tensor([0.0, 77.0, 1024.0])), found
print("done")
"""


@pytest.mark.sample(4)
def test_features_need_not_fit_the_memory(tmp_path: Path) -> None:
    """Features of 256 MB in a process that may have 64 MB more than it begins with."""
    file = tmp_path / "features.npy"
    made = np.lib.format.open_memmap(file, mode="w+", dtype=np.float32, shape=(1 << 17, 512))
    made[:, 0] = np.arange(len(made))
    made[-1, 0] = 1024
    del made
    for way, works in (("file", True), ("memory", False)):
        done = subprocess.run(
            [sys.executable, "-c", LIMITED, str(file), way, str(tmp_path / "kept")], capture_output=True, text=True
        )
        assert (done.returncode == 0 and "done" in done.stdout) == works, done.stderr


@pytest.mark.sample(2)
@pytest.mark.parametrize("size", [1, 2])
def test_rows_lie_beside_the_graph_that_was_prepared_for_the_evaluation(
    ranks,
    tmp_path: Path,
    graph_files: dict[str, Path],
    size: int,
) -> None:
    keys = [*MODELS["sage"], "codec._target_=tests.sampling.test_features.Counted", "loader.map_features=true"]
    cache = tmp_path / "cache"
    cfg = case(graph_files["directed"], tmp_path / "found", *keys, f"runtime.cache_dir={cache}")
    (prepared, was_there), before = Preparation(cfg, size).in_folder(tmp_path / "unused"), {}
    assert not was_there
    for turn in range(2):
        cfg.run_dir = str(tmp_path / f"run{turn}")
        result = ranks(size)(run, cfg)[0]
        assert result["record"]["prepared"] == str(prepared)
        assert [*(cache / "prepared").iterdir()] == [prepared] and len([*(cache / "encoded").iterdir()]) == 2
        assert turn == 0 or before == {file: file.stat().st_mtime_ns for file in cache.rglob("*.np?")}
        before = {file: file.stat().st_mtime_ns for file in cache.rglob("*.np?")}
    plain = ranks(size)(run, case(graph_files["directed"], tmp_path / "plain", *keys))[0]
    same(result, plain, 0)
    with np.load(graph_files["directed"]) as arrays_of_file:
        content = dict(arrays_of_file)
    changed = tmp_path / "changed.npz"
    np.savez(changed, **content)
    cfg = case(changed, tmp_path / "other", *keys, f"runtime.cache_dir={cache}")
    ranks(size)(run, cfg)
    assert len([*(cache / "prepared").iterdir()]) == 2  # another file, with the same features
    assert len([*(cache / "encoded").iterdir()]) == 2


def test_the_keys_are_configuration(tmp_path: Path) -> None:
    cfg = minibatch_config("cache=exact", "codec=bfloat16", "loader.map_features=true", "runtime.device=cpu")
    with world_of_one(cfg.runtime) as world:
        training = set_up_sampled(cfg, world, Meter(world.device))
        rows = training.loader.features.rows
        assert rows.dtype == np.int16 and not rows.flags.writeable
        batch = next(training.loader.epoch(1))
        assert isinstance(batch.x, torch.Tensor) and batch.x.dtype == torch.float32
