"""A record of the torch.distributed operations that a program starts, in order."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist

OPERATIONS = ("all_reduce", "broadcast", "batch_isend_irecv", "all_gather_object", "broadcast_object_list", "send")


@contextmanager
def recorded() -> Iterator[list[tuple[str, Any]]]:
    """A list of the operations that the context starts: their names and groups; None is the group of all ranks."""
    started: list[tuple[str, Any]] = []
    originals = {name: getattr(dist, name) for name in OPERATIONS}

    def recording(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            group = args[0][0].group if name == "batch_isend_irecv" else kwargs.get("group")
            started.append((name, None if group is dist.group.WORLD else group))
            return originals[name](*args, **kwargs)

        return call

    for name in OPERATIONS:
        setattr(dist, name, recording(name))
    try:
        yield started
    finally:
        for name, original in originals.items():
            setattr(dist, name, original)
