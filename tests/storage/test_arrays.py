"""Arrays are measured before they are read: what is announced must be there, and fit the memory."""

import io
import mmap
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from fullgnn.errors import DataError
from fullgnn.storage.archive import Archive, read_arrays
from fullgnn.storage.arrays import DamagedArray, ObjectArray, map_npy, read_npy
from fullgnn.telemetry import machine
from fullgnn.telemetry.machine import check_fits, free_bytes, within_memory


def npy(descr: str, shape: str, values: bytes, order: str = "False") -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + values


def archive(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> io.BytesIO:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as target:
        for name, content in members.items():
            target.writestr(f"{name}.npy", content)
    return file


ARRAYS = {
    "one": np.arange(12, dtype=np.int32).reshape(3, 4),
    "columns": np.asfortranarray(np.arange(6, dtype=np.float64).reshape(2, 3)),
    "none": np.empty((0, 3), np.float32),
    "single": np.array(7),
    "swapped": np.arange(4, dtype=">i2"),
    "text": np.array("a text"),
    "mask": np.array([True, False]),
}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_are_those_that_numpy_reads(save, tmp_path: Path) -> None:
    save(tmp_path / "a.npz", **ARRAYS)
    arrays = read_arrays(tmp_path / "a.npz")
    assert list(arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)
        np.save(tmp_path / "one.npy", array)
        content = (tmp_path / "one.npy").read_bytes()
        np.testing.assert_array_equal(read_npy(io.BytesIO(content), len(content)), array)
    np.save(tmp_path / "one.npy", ARRAYS["columns"])
    np.testing.assert_array_equal(map_npy(tmp_path / "one.npy"), ARRAYS["columns"])


def test_arrays_that_an_archive_does_not_pack_are_mapped(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **ARRAYS)
    np.savez_compressed(tmp_path / "packed.npz", **ARRAYS)
    whole = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "behind.npz").write_bytes(b"other bytes" + whole)  # a zip archive may begin anywhere
    with Archive(tmp_path / "packed.npz") as packed:
        assert not any(packed.is_stored(name) for name in ARRAYS)
    for file in ("a.npz", "behind.npz"):
        with Archive(tmp_path / file) as stored:
            for name, array in ARRAYS.items():
                mapped = stored.map(name)
                assert stored.is_stored(name) and mapped.dtype == array.dtype
                np.testing.assert_array_equal(mapped, array)
                assert not mapped.size or (isinstance(mapped.base.base, mmap.mmap) and not mapped.flags.writeable)
    entry = whole.index(b"PK\x01\x02")
    for place, width, value in ((entry + 42, "I", 5), (entry + 24, "I", 9), (28, "H", 0xFFFF)):  # place, size, name
        changed = bytearray(whole)
        changed[place : place + struct.calcsize(width)] = struct.pack("<" + width, value)
        (tmp_path / "changed.npz").write_bytes(changed)
        with Archive(tmp_path / "changed.npz") as damaged, pytest.raises(DamagedArray):
            damaged.map("one")


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (npy("'<f8'", "(1000000000000,)", b""), "announces 8000000000000 bytes of values, and there are 0"),
        (npy("'<f8'", "(3,)", bytes(16)), "announces 24 bytes of values, and there are 16"),
        (npy("'<f8'", "(2,)", bytes(24)), "announces 16 bytes of values, and there are 24"),
        (npy("'<f8'", "(2**62,)", b""), "its header is"),
        (npy("'<f8'", "(-3,)", b""), "its header is"),
        (npy("'|V8'", "(1,)", bytes(8)), "its values have the dtype .V8"),
        (npy("[('a', '<f8')]", "(1,)", bytes(8)), "its values have the dtype"),
        (npy("'<f8,<f8'", "(1,)", bytes(16)), "its values have the dtype"),
        (npy("__import__('os').system('true')", "(1,)", bytes(8)), "its header is"),
        (npy("'<f8'", "(1,)", bytes(8), "(" * 5000), "its header is"),
        (npy("'<f8'", "(1,)", bytes(8), " " * 20_000 + "False"), "its header has 0 of 20"),
        (b"\x93NUMPY\x09\x00" + bytes(100), "it is no .npy"),
        (b"", "it is no .npy"),
    ],
)
def test_a_header_must_tell_the_truth(member: bytes, message: str, tmp_path: Path) -> None:
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with pytest.raises(DamagedArray, match=message):
            read_arrays(archive({"a": member}, method))
    with pytest.raises(DamagedArray, match=message):
        read_npy(io.BytesIO(member), len(member))
    (tmp_path / "a.npy").write_bytes(member)
    with pytest.raises(DamagedArray, match=message):
        map_npy(tmp_path / "a.npy")


def test_objects_are_never_read() -> None:
    with pytest.raises(ObjectArray):
        read_arrays(archive({"a": npy("'|O'", "(1,)", bytes(8))}))


def test_an_archive_must_have_the_bytes_that_it_announces() -> None:
    whole = archive({"a": npy("'<f8'", "(2,)", bytes(16))}, zipfile.ZIP_STORED).getvalue()
    entry = whole.index(b"PK\x01\x02")
    for field in (20, 24):  # packed size, size
        changed = bytearray(whole)
        changed[entry + field : entry + field + 4] = struct.pack("<I", 3 << 30)
        with pytest.raises(DamagedArray, match="announces .* which the file cannot hold"):
            read_arrays(io.BytesIO(changed))
    with pytest.raises(DamagedArray, match="two arrays have one name"), pytest.warns(UserWarning, match="Duplicate"):
        file = archive({"a": npy("'<f8'", "(2,)", bytes(16))})
        with zipfile.ZipFile(file, "a") as target:
            target.writestr("a.npy", b"")
        read_arrays(file)


def test_what_does_not_fit_is_refused_before_it_is_unpacked(monkeypatch) -> None:
    size = 64 << 20
    bomb = archive({"a": npy("'<f8'", f"({size // 8},)", bytes(size)), "b": npy("'<f8'", "()", bytes(8))})
    assert len(bomb.getvalue()) < size / 500
    monkeypatch.setattr(machine, "free_bytes", lambda: size - 1)
    with Archive(bomb) as opened:
        assert opened.read("b") == 0  # another array of the file
        with pytest.raises(DataError, match=f"^g.npz: a needs {size} bytes of memory, and {size - 1} are free: take"):
            opened.read("a", "g.npz: a", "take another")
    monkeypatch.setattr(machine, "free_bytes", lambda: size + 8)
    assert read_arrays(bomb)["a"].nbytes == size


def test_memory_that_is_too_little_is_one_line_with_the_bytes() -> None:
    assert 0 < free_bytes() < 1 << 62
    check_fits(1000, "a file", "cure")
    with pytest.raises(DataError, match=r"a file needs 4611686018427387904 bytes of memory, and \d+ are free: cure"):
        check_fits(1 << 62, "a file", "cure")
    with pytest.raises(
        DataError, match=r"^the graph .*\(16000000000000000 more bytes were wanted, and \d+ bytes are free"
    ):
        with within_memory("the graph"):
            np.empty(2 * 10**15)
    with pytest.raises(DataError, match=r"^the graph does not fit into memory \(\d+ bytes are free\)"):
        with within_memory("the graph"):
            raise MemoryError


def test_too_little_memory_of_torch_of_the_system_and_of_a_gpu_is_one_line() -> None:
    with pytest.raises(DataError, match=r"^the model .*\(4503599627370496 more bytes were wanted, and \d+ bytes"):
        with within_memory("the model"):
            torch.empty(1 << 52, dtype=torch.uint8)
    with pytest.raises(DataError, match=r"^the slots does not fit into memory \(.*memory, and \d+"):
        with within_memory("the slots"):
            mmap.mmap(-1, 1 << 52)
    of_gpu = torch.OutOfMemoryError(
        "CUDA out of memory. Tried to allocate 20.00 GiB.\nGPU 0 has 1 GiB free. " + 500 * "x"
    )
    with pytest.raises(
        DataError, match=r"^it does not fit into the memory of the GPU \(CUDA out of memory. Tried"
    ) as told:
        with within_memory("it"):
            raise of_gpu
    assert len(str(told.value)) < 400 and "\n" not in str(told.value)
    for other in (RuntimeError("shapes do not match"), OSError(2, "No such file"), ValueError("memory")):
        with pytest.raises(type(other)) as same, within_memory("it"):
            raise other
        assert same.value is other
