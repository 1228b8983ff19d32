"""The call of METIS that ``partition/metis.py`` and ``reorder/metis.py`` share."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile

import numpy as np
from scipy import sparse


class MetisError(Exception):
    """pymetis is not installed, or did not return a partition."""


def kway(
    pattern: sparse.csr_array, num_parts: int, seed: int, weight: np.ndarray | None = None, tolerance: float = 0.03
) -> np.ndarray:
    """Multilevel k-way partitioning (Karypis and Kumar 1998): few edges between parts of nearly equal weight.

    Args:
        pattern: (n, n), as :func:`~fullgnn.partition.pattern.undirected` returns it.
        weight: (n,) int64, 1 or more; None: 1 for each node.
        tolerance: how far the heaviest part may lie above the mean, relative; METIS does not guarantee it.

    Returns:
        (n,) int64, the part of each node.

    Raises:
        MetisError: pymetis is missing or fails for any reason, so that the caller can fall back.
    """
    try:
        import pymetis  # imported here, since the package is optional

        dtype = pymetis.zero_copy_dtype()
        graph = pymetis.CSRAdjacency(pattern.indptr.astype(dtype), pattern.indices.astype(dtype))
        # METIS calls srand, which treats 0 and 1 as the same seed.
        options = pymetis.Options(seed=1 + seed % (2**31 - 1), ufactor=max(1, round(1000 * tolerance)))
        vweights = None if weight is None else weight.astype(dtype)
        with _without_its_remarks():
            result = pymetis.part_graph(num_parts, graph, vweights=vweights, recursive=False, options=options)
        return np.asarray(result.vertex_part, dtype=np.int64)
    except Exception as error:
        raise MetisError(f"pymetis failed ({error!r}): reinstall pymetis") from error


@contextmanager
def _without_its_remarks() -> Iterator[None]:
    """Keep from stdout what METIS prints there, such as ``***Cannot bisect a graph with 0 vertices!``: it is no error,
    and stdout belongs to the results of a command. Lines of other threads appear at the end of the ``with`` block."""
    flush = ctypes.CDLL(None).fflush
    flush(None)
    stdout = os.dup(1)
    with TemporaryFile() as printed:
        try:
            os.dup2(printed.fileno(), 1)
            yield
            flush(None)
        finally:
            os.dup2(stdout, 1)
            printed.seek(0)
            others = b"".join(line for line in printed if not line.lstrip().startswith(b"***"))
            with open(stdout, "wb") as file:
                file.write(others)
