"""Write results of all nodes to files on rank 0, while their rows arrive from the ranks part by part.

Each file is a plain ``.npy`` that is mapped into memory, not held in it: a part is written to the places of its nodes
and then freed. So rank 0 holds one part at a time, however many nodes there are.
"""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fullgnn.distributed import from_rank0
from fullgnn.schemes.base import Scheme
from fullgnn.storage.folder import make_folder, replacing, writing_to


def write_rows(scheme: Scheme, folder: Path, rows: Mapping[str, Tensor], num_nodes: int) -> None:
    """Write ``<name>.npy`` for each tensor of ``rows``, with the rows of all ranks. Every rank calls it.

    The files take their place when all are complete. Space on the disk is reserved before the first part arrives.

    Args:
        folder: on rank 0.
        rows: by name, (num_local_nodes, ...).

    Raises:
        ConfigError: the files cannot be written; the same on every rank.
    """
    with ExitStack() as stack:

        def create() -> dict[str, np.memmap]:
            with writing_to("out", make_folder(folder)):
                return {name: _new_array(stack, folder / f"{name}.npy", num_nodes, of) for name, of in rows.items()}

        def complete() -> None:
            with writing_to("out", folder):
                for file in files.values():
                    file.flush()
                stack.close()

        files = from_rank0(create) or {}
        for part in scheme.gather_parts(rows):  # on rank 0
            for name, file in files.items():
                file[part["node_id"]] = part[name]
        from_rank0(complete)


def _new_array(stack: ExitStack, path: Path, num_nodes: int, rows: Tensor) -> np.memmap:
    """A file for the rows of all nodes under a temporary name, which becomes ``path`` when ``stack`` closes."""
    temporary = stack.enter_context(replacing(path))
    dtype = torch.empty(0, dtype=rows.dtype).numpy().dtype
    array = np.lib.format.open_memmap(temporary, mode="w+", dtype=dtype, shape=(num_nodes, *rows.shape[1:]))
    if hasattr(os, "posix_fallocate"):  # otherwise a disk that becomes full would kill the process
        with open(temporary, "r+b") as file:
            os.posix_fallocate(file.fileno(), 0, os.path.getsize(temporary))
    return array
