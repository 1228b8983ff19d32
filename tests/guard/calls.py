"""How often each rank calls a collective of torch between its last two steps: a count that no option prints.

In full-batch training this is an epoch with its evaluation, in sampled training it is a batch.

``count`` replaces the functions of ``torch.distributed`` in the process of a command, before it forks its ranks. It
depends on nothing of fullgnn but that fullgnn calls these functions as attributes of ``torch.distributed``. Objects of
the host travel by other functions, which are not counted.
"""

import os
from collections import Counter
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

COLLECTIVES = (
    "all_gather",
    "all_gather_into_tensor",
    "all_reduce",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "reduce",
    "reduce_scatter_tensor",
)
STEP = "step"
"""The line of a step of an optimizer among the lines of calls."""


def count(folder: str) -> None:
    """Let this process, and the forks of it, write a line for each collective and each step to ``folder``."""
    import torch.distributed as dist
    from torch.optim.optimizer import register_optimizer_step_post_hook

    def write(line: str) -> None:
        if dist.is_initialized():
            with open(os.path.join(folder, f"rank_{dist.get_rank()}"), "a") as file:
                file.write(line + "\n")

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            write(function.__name__)
            return function(*args, **kwargs)

        return call

    for name in COLLECTIVES:
        setattr(dist, name, counted(getattr(dist, name)))
    register_optimizer_step_post_hook(lambda *_: write(STEP))


def read(folder: Path) -> list[dict[str, int]]:
    """By rank, the calls of each collective between the last two steps."""
    ranks = []
    for file in sorted(folder.iterdir(), key=lambda file: int(file.name.rpartition("_")[2])):
        lines = file.read_text().split()
        *_, begin, end = (number for number, line in enumerate(lines) if line == STEP)
        ranks.append(dict(Counter(sorted(lines[begin + 1 : end]))))
    return ranks
