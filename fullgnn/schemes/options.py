"""The options that 1D and 1.5D share: the keys of ``conf/scheme/base.yaml``, and ``replication``."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch

from fullgnn.errors import ConfigError
from fullgnn.schemes.layout import Grid

CHOICES = {
    "stage_order": ("diagonal", "broadcast"),
    "exchange": ("auto", "broadcast", "needed_rows"),
    "fetch": ("auto", "stages", "whole"),
    "wire_dtype": (None, "bfloat16"),
}


@dataclass(frozen=True)
class SchemeOptions:
    """How a matrix is cut, and how the rows of H travel.

    Raises:
        ConfigError: a value is not among the choices of its key.
    """

    replication: int = 2
    """Ranks that share a block row, r."""
    stage_order: str = "diagonal"
    """``diagonal``: block row i multiplies block (i, i+s mod b) in stage s; ``broadcast``: block (i, s)."""
    exchange: str = "auto"
    """``broadcast``: whole blocks of H travel; ``needed_rows``: only the rows that are read travel; ``auto``: the
    cheaper of the two for each block."""
    fetch: str = "auto"
    """``stages``: the rows of one stage arrive while the previous stage is multiplied; ``whole``: the rows of all other
    ranks arrive in one exchange while a rank's own rows are multiplied, which needs a buffer for all of them; ``auto``:
    the planner chooses in a run on several GPUs and with ``scheme=auto``, otherwise ``stages``."""
    split_rows: bool = True
    """Whether each replica holds 1/r of its block's rows; otherwise it holds all of them, as in the published 1.5D."""
    wire_dtype: str | None = None
    """``bfloat16`` halves the bytes of the rows of H and its gradients that ranks send; the run is then not exact."""
    shared_memory: bool = True
    """Whether ranks read each other's rows in place where ``can_share_memory`` allows it: on one machine, on CPUs."""

    def __post_init__(self) -> None:
        for key, choices in CHOICES.items():
            if getattr(self, key) not in choices:
                known = ", ".join("null" if choice is None else choice for choice in choices)
                raise ConfigError(f"scheme.{key}={getattr(self, key)} is not known: choose one of {known}")

        if self.fetch == "whole" and self.stage_order == "broadcast":
            raise ConfigError("scheme.fetch=whole has no stages to broadcast: set scheme.stage_order=diagonal")

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> "SchemeOptions":
        """Pick the options from ``node``, the ``scheme`` section of a configuration, which may hold other keys too."""
        return cls(**{field.name: node[field.name] for field in fields(cls) if field.name in node})

    @property
    def torch_wire_dtype(self) -> torch.dtype | None:
        """The dtype in which rows travel; None: unchanged."""
        return None if self.wire_dtype is None else getattr(torch, self.wire_dtype)

    def grid(self, world_size: int) -> Grid:
        """The (b, r) mesh of ``world_size`` ranks.

        Raises:
            ConfigError: ``replication`` does not divide ``world_size``.
        """
        if self.replication < 1 or world_size % self.replication:
            divisors = ", ".join(str(r) for r in range(1, world_size + 1) if world_size % r == 0)
            raise ConfigError(
                f"scheme.replication={self.replication} does not divide the {world_size} processes: "
                f"choose one of {divisors}"
            )
        num_parts = world_size // self.replication
        return Grid(num_parts, self.replication, self.split_rows, self.stage_order, self.exchange, self.fetch)


def replications(world_size: int) -> list[int]:
    """The replications r that give every replica at least one of the p/r stages: r divides p, and r^2 <= p."""
    return [r for r in range(1, world_size + 1) if world_size % r == 0 and r * r <= world_size]
