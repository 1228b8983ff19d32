"""The cache on disk loads the same bits that were stored, or nothing."""

import io
import logging
import threading
from pathlib import Path

import numpy as np
import pytest

from fullgnn.errors import ConfigError
from fullgnn.storage import cache as cache_module
from fullgnn.storage.cache import Cache, _read

ARRAYS = {
    "perm": np.random.default_rng(0).permutation(20),
    "product": np.array([[np.nan, -0.0, np.inf], [1e-40, 1.0, 2.0]], np.float32),
    "empty": np.empty((0, 5)),
    "count": np.array(7),
}


def same_bits(arrays: dict[str, np.ndarray] | None, expected: dict[str, np.ndarray]) -> bool:
    return (
        arrays is not None
        and arrays.keys() == expected.keys()
        and all(a.dtype == b.dtype and a.shape == b.shape for a, b in zip(arrays.values(), expected.values()))
        and all(a.tobytes() == b.tobytes() for a, b in zip(arrays.values(), expected.values()))
    )


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(str(tmp_path / "new" / "folder"))


def stored_file(cache: Cache) -> Path:
    cache.store("order", "k", ARRAYS)
    (file,) = Path(str(cache.folder)).rglob("*.*")
    return file


def test_what_was_stored_is_loaded_to_the_bit(cache: Cache) -> None:
    assert cache.load("order", "k", dict) is None
    cache.store("order", "k", ARRAYS)
    assert same_bits(cache.load("order", "k", dict), ARRAYS)
    assert cache.load("order", "other", dict) is None and cache.load("aggregation", "k", dict) is None
    cache.store("order", "k", {"perm": ARRAYS["perm"][::-2]})  # replaces the entry by an array that is not contiguous
    assert same_bits(cache.load("order", "k", dict), {"perm": ARRAYS["perm"][::-2].copy()})


def test_without_a_folder_nothing_is_kept_and_nothing_hashed(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hashlib.sha256", pytest.fail)
    cache = Cache(None)
    cache.check()
    cache.store("order", cache.key(a=ARRAYS["perm"]), ARRAYS)
    assert cache.key(a=1) == "" and cache.load("order", "", dict) is None and not list(tmp_path.iterdir())


def test_a_key_tells_apart_all_that_differs(cache: Cache) -> None:
    x = np.arange(6, dtype=np.int32)
    different = [
        {"a": x},
        {"b": x},
        {"a": x.astype(np.int64)},
        {"a": x.view(np.float32)},
        {"a": x.reshape(2, 3)},
        {"a": x.reshape(3, 2)},
        {"a": x[:5]},
        {"a": x[:0]},
        {"a": x.tolist()},
        {"a": None},
        {"a": x, "b": None},
        {"a": 1},
        {"a": True},
        {"a": "1"},
        {"a": {"scope": "block", "num_blocks": None}},
        {"a": {"scope": "block", "num_blocks": 1}},
    ]
    assert len({cache.key(**parts) for parts in different}) == len(different)
    read_only = x.copy()
    read_only.flags.writeable = False
    wide = np.arange(12, dtype=np.int32) // 2
    assert cache.key(a=x) == cache.key(a=read_only) == cache.key(a=wide[::2])
    assert cache.key(a={"b": 1, "c": 2}) == cache.key(a={"c": 2, "b": 1})
    assert cache.key(a=x) == Cache("elsewhere").key(a=x)


def test_a_format_of_its_own_for_each_version(cache: Cache, monkeypatch) -> None:
    before = cache.key(a=1)
    monkeypatch.setattr("fullgnn.storage.cache.FORMAT", 999)
    assert cache.key(a=1) != before


def test_a_cut_file_counts_as_none_and_is_said_in_one_line(cache: Cache, caplog) -> None:
    file = stored_file(cache)
    whole = file.read_bytes()
    for length in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        caplog.clear()
        file.write_bytes(whole[:length])
        assert cache.load("order", "k", dict) is None
        (record,) = caplog.records
        message = record.getMessage()
        assert record.levelno == logging.WARNING and str(file) in message and "\n" not in message
    cache.store("order", "k", ARRAYS)
    assert same_bits(cache.load("order", "k", dict), ARRAYS)


def test_no_damaged_byte_leads_to_other_arrays(cache: Cache) -> None:
    whole = stored_file(cache).read_bytes()
    lost = 0
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        try:
            assert same_bits(_read(io.BytesIO(damaged)), ARRAYS), place
        except Exception as error:
            assert not isinstance(error, AssertionError)
            lost += 1
    assert lost > len(whole) // 2  # the other bytes change no array: the date of a member, for example


def test_files_that_are_something_else(cache: Cache) -> None:
    file = stored_file(cache)
    np.savez(file, perm=np.array([{"an": "object"}]))  # an array of objects needs pickle
    assert cache.load("order", "k", dict) is None
    with file.open("wb") as bare:
        np.save(bare, ARRAYS["perm"])
    assert cache.load("order", "k", dict) is None
    file.unlink()
    file.mkdir()
    assert cache.load("order", "k", dict) is None
    cache.store("order", "k", ARRAYS)  # logs a warning and raises nothing


def test_readers_and_writers_at_once_see_whole_files(cache: Cache) -> None:
    wrong = []
    arrays = {"x": np.random.default_rng(1).random(50_000)}
    cache.store("order", "k", arrays)

    def write() -> None:
        for _ in range(15):
            cache.store("order", "k", arrays)

    def read() -> None:
        for _ in range(30):
            if not same_bits(cache.load("order", "k", dict), arrays):
                wrong.append("not whole")

    threads = [threading.Thread(target=target) for target in (write, write, write, read, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert [file.name for file in Path(str(cache.folder)).rglob("*.*")] == ["k.npz"]


@pytest.mark.parametrize("step", ["numpy.savez", "os.replace"])
def test_a_write_that_fails_leaves_nothing_and_ends_no_run(step: str, cache: Cache, monkeypatch, caplog) -> None:
    def fail(*args, **kwargs) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(step, fail)
    cache.store("order", "k", ARRAYS)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "No space left on device" in caplog.text
    assert not list(Path(str(cache.folder)).rglob("*.*"))


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ConfigError, match=f"^runtime.cache_dir={path} cannot be written .*: choose") as caught:
            Cache(str(path)).check()
        assert "\n" not in str(caught.value)
    Cache(str(tmp_path / "new" / "folder")).check()
    assert not list((tmp_path / "new" / "folder").iterdir())


def test_a_read_only_folder_is_named(tmp_path: Path, monkeypatch) -> None:
    def refuse(*args, **kwargs) -> None:  # simulated, since root may write to a read-only folder
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(cache_module, "TemporaryFile", refuse)
    with pytest.raises(ConfigError, match="Permission denied"):
        Cache(str(tmp_path)).check()


def test_a_home_folder_is_found(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Cache("~/kept").folder == tmp_path / "kept"
