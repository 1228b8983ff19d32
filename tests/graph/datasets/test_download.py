"""Downloads are verified and atomic; a failed download raises a one-line error and leaves no file."""

import hashlib
import urllib.error

import pytest

from fullgnn.errors import DataError
from fullgnn.graph.datasets import download
from fullgnn.graph.datasets.download import fetch

CONTENT = {"a.bin": b"first file" * 1000, "b.bin": b"second file"}
SHA256 = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENT.items()}


@pytest.fixture
def url(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for name, content in CONTENT.items():
        (source / name).write_bytes(content)
    return source.as_uri()


def offline(*args, **kwargs):
    raise urllib.error.URLError("Name or service not known")


def test_downloads_what_is_absent(url, tmp_path):
    paths = fetch(str(tmp_path / "deep" / "root"), list(CONTENT), url, SHA256)
    assert [path.read_bytes() for path in paths] == list(CONTENT.values())
    assert sorted(path.name for path in paths[0].parent.iterdir()) == sorted(CONTENT)
    assert paths[0].stat().st_mode & 0o777 == 0o644


def test_keeps_what_is_present(url, tmp_path, monkeypatch):
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.bin").write_bytes(b"mine")
    fetch(str(root), list(CONTENT), url, SHA256)
    assert (root / "a.bin").read_bytes() == b"mine" and (root / "b.bin").read_bytes() == CONTENT["b.bin"]
    monkeypatch.setattr(download.urllib.request, "urlopen", offline)
    assert len(fetch(str(root), list(CONTENT), url, SHA256)) == 2  # all files exist: nothing is fetched


def test_offline_message_lists_the_files_and_the_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(download.urllib.request, "urlopen", offline)
    root = tmp_path / "root"
    with pytest.raises(DataError) as error:
        fetch(str(root), ["a.bin", "b.bin"], "https://example.org/data", {})
    message = str(error.value)
    assert "a.bin, b.bin from https://example.org/data" in message and str(root) in message
    assert "Name or service not known" in message and "\n" not in message
    assert not root.exists()


def test_timeout_is_short_and_passed_on(url, tmp_path, monkeypatch):
    seen = {}

    def stalled(*args, timeout):
        seen["timeout"] = timeout
        raise TimeoutError("timed out")

    monkeypatch.setattr(download.urllib.request, "urlopen", stalled)
    with pytest.raises(DataError, match="timed out"):
        fetch(str(tmp_path), ["a.bin"], url, SHA256)
    assert seen["timeout"] <= 5


def test_wrong_checksum_leaves_nothing(url, tmp_path):
    root = tmp_path / "root"
    with pytest.raises(DataError, match="sha256 .* instead of 0000: nothing was kept"):
        fetch(str(root), ["a.bin"], url, {"a.bin": "0000"})
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("failure", [b"", ConnectionResetError("reset by peer")], ids=["closed", "reset"])
def test_broken_transfer_leaves_nothing(failure, tmp_path, monkeypatch):
    class Response:
        headers = {"Content-Length": "100"}
        chunks = [b"x" * 60, failure]

        def __enter__(self):
            return self

        def __exit__(self, *details):
            return False

        def read(self, size):
            chunk = self.chunks.pop(0)
            if isinstance(chunk, Exception):
                raise chunk
            return chunk

    monkeypatch.setattr(download.urllib.request, "urlopen", lambda url, timeout: Response())
    with pytest.raises(DataError, match="closed after 60 of 100 bytes|reset by peer"):
        fetch(str(tmp_path), ["a.bin"], "https://example.org", {})
    assert list(tmp_path.iterdir()) == []
