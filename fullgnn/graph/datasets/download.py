"""Download of raw dataset files: verified, atomic, and with a short timeout for machines without a network."""

import hashlib
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from pathlib import Path

from tqdm import tqdm

from fullgnn.errors import DataError
from fullgnn.graph.checks import first_line
from fullgnn.storage.folder import replacing

DOWNLOAD_AGAIN = "delete it and run again to download it afresh"
"""What a user does with a public file in ``root`` that cannot be read; never said of a file of the user's own."""

TIMEOUT_S = 5
CHUNK_BYTES = 1 << 18


def fetch(root: str, names: Sequence[str], url: str, sha256: Mapping[str, str]) -> list[Path]:
    """Paths of the files ``names`` in the folder ``root``; absent files are first downloaded from ``url``.

    Files that exist are neither downloaded nor verified, so that a user may put them there by hand.

    Args:
        sha256: expected hex digest by file name; a name without one is not verified.
    """
    folder = Path(root).expanduser()
    missing = [name for name in names if not (folder / name).is_file()]
    for name in missing:
        try:
            _download(f"{url}/{name}", folder / name, sha256.get(name))
        except (OSError, HTTPException, ValueError) as error:  # OSError covers URLError and timeouts
            raise DataError(
                f"cannot download {name} ({first_line(error)}); without a network, get {', '.join(missing)}"
                f" from {url} by other means and put them in {folder.resolve()}"
            ) from error
    return [folder / name for name in names]


def _download(url: str, path: Path, sha256: str | None) -> None:
    """Download one file under a temporary name; rename it to ``path`` only when it is complete and verified."""
    digest = hashlib.sha256()
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
        size = int(response.headers.get("Content-Length") or 0) or None
        with replacing(path) as temporary:  # several jobs on the machine may be downloading at once
            received = 0
            with temporary.open("wb") as part, tqdm(total=size, unit="B", unit_scale=True, desc=path.name) as progress:
                while chunk := response.read(CHUNK_BYTES):
                    part.write(chunk)
                    digest.update(chunk)
                    progress.update(len(chunk))
                    received += len(chunk)
            if size is not None and received != size:
                raise OSError(f"connection closed after {received} of {size} bytes")
            if sha256 is not None and digest.hexdigest() != sha256:
                raise DataError(
                    f"{url} has sha256 {digest.hexdigest()} instead of {sha256}: nothing was kept; the"
                    f" source has changed or the transfer was altered, so put a good copy at {path.resolve()}"
                )
