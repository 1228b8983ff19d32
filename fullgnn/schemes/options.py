"""The options that 1D and 1.5D share: the keys of ``conf/scheme/base.yaml``, and ``replication``."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NoReturn

import numpy as np
import torch

from fullgnn.errors import ConfigError
from fullgnn.schemes.pieces import all_at_once, packed_pieces
from fullgnn.schemes.product_layout import ProductLayout, RowDistribution, choose_transports

CHOICES = {
    "stage_order": ("diagonal", "broadcast"),
    "exchange": ("auto", "broadcast", "needed_rows"),
    "fetch": ("auto", "stages", "whole", "packed"),
    "wire_dtype": (None, "bfloat16"),
}


ONE_D, ONE_AND_HALF_D, OPEN = (
    "fullgnn.schemes.one_d",
    "fullgnn.schemes.one_and_half_d",
    "fullgnn.costs.auto.open_choices",
)
"""What builds 1D and 1.5D; and the target of a scheme that is not chosen yet."""


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
    """``packed``: the rows that other ranks read are packed side by side and sent by one all-to-all a piece, while a
    rank's own rows are multiplied; the way of GPUs. ``stages`` and ``whole`` send a message for each pair of ranks, for
    CPUs and for the experiments of papers: the rows of one stage arrive while the previous stage is multiplied, or
    those of all other ranks in one exchange. ``auto``: on GPUs ``packed`` where ``can_pack``; on CPUs the planner
    chooses one of the others with ``scheme=auto``; otherwise ``stages``."""
    piece_rows: int | None = None
    """The most rows that a rank sends or receives in a piece of ``fetch=packed``, which bounds its buffers; None: on a
    GPU what its memory allows, otherwise any number."""
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

        if self.fetch in ("whole", "packed") and self.stage_order == "broadcast":
            raise ConfigError(f"scheme.fetch={self.fetch} has no stages to broadcast: set scheme.stage_order=diagonal")
        if self.fetch == "packed" and self.exchange == "broadcast":
            raise ConfigError("scheme.fetch=packed sends the rows that are read alone: set scheme.exchange=auto")
        if self.piece_rows is not None and self.piece_rows < 1:
            raise ConfigError(f"scheme.piece_rows={self.piece_rows} is no number of rows: give at least 1, or null")
        if self.piece_rows is not None and self.fetch not in ("auto", "packed"):
            raise ConfigError(f"scheme.fetch={self.fetch} has no pieces: leave out scheme.piece_rows")

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> "SchemeOptions":
        """Pick the options from ``node``, the ``scheme`` section of a configuration, which may hold other keys too."""
        return cls(**{field.name: node[field.name] for field in fields(cls) if field.name in node})

    @property
    def can_pack(self) -> bool:
        """Whether ``fetch=auto`` may be ``packed``: no key asks for an order or a transport of its own."""
        return self.stage_order == "diagonal" and self.exchange != "broadcast"

    @property
    def torch_wire_dtype(self) -> torch.dtype | None:
        """The dtype in which rows travel; None: unchanged."""
        return None if self.wire_dtype is None else getattr(torch, self.wire_dtype)

    def grid(self, world_size: int) -> "Grid":
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
        return Grid(**vars(self), num_parts=world_size // self.replication)

    def grid_on(self, device: torch.device, world_size: int) -> "Grid":
        """``grid`` of ranks on such a ``device``, with ``packed`` for ``auto`` on GPUs, where it can be.

        Raises:
            ConfigError: as ``grid``.
        """
        grid = self.grid(world_size)
        packs = self.fetch == "auto" and device.type == "cuda" and self.can_pack
        return replace(grid, fetch="packed") if packs else grid


@dataclass(frozen=True)
class Grid(SchemeOptions):
    """The (b, r) mesh on which a matrix is cut with these options."""

    num_parts: int = 1
    """Block rows, b."""

    @property
    def num_ranks(self) -> int:
        return self.num_parts * self.replication

    @property
    def packs(self) -> bool:
        """Whether the rows of other ranks travel side by side, see ``pieces.py``."""
        return self.fetch == "packed" and self.num_ranks > 1

    def product(
        self, in_rows: RowDistribution, out_rows: RowDistribution, stages: list[list[int]], halo: np.ndarray | None
    ) -> ProductLayout:
        """The product of a matrix whose rows are distributed as ``out_rows``, and how the rows of X arrive.

        Args:
            in_rows: distribution of the rows of X.
            stages: see ``ProductLayout``.
            halo: ``Halos.counts``; None if only whole blocks travel.
        """
        transports = choose_transports(in_rows, halo, self.stage_order, self.exchange, self.packs)
        made = ProductLayout(in_rows, out_rows, stages, self.stage_order, transports, None)
        if self.num_ranks == 1 or self.fetch not in ("whole", "packed"):
            return made
        if self.packs and self.piece_rows is not None:
            return replace(made, pieces=packed_pieces(made.rows_by_place(halo), self.piece_rows))
        return replace(made, pieces=all_at_once(max(map(len, stages)), self.packs))

    @property
    def broadcasts(self) -> bool:
        """Whether rows of some stages may be broadcast along the block rows; a single block is, to no one."""
        return self.stage_order == "broadcast" and (self.exchange != "needed_rows" or self.num_parts == 1)

    @property
    def num_slices(self) -> int:
        """Number of slices into which the rows of a block are cut."""
        return self.replication if self.split_rows else 1

    def place(self, rank: int) -> tuple[int, int]:
        """Block row and replica of ``rank``."""
        return divmod(rank, self.replication)


def replications(world_size: int) -> list[int]:
    """The replications r that give every replica at least one of the p/r stages: r divides p, and r^2 <= p."""
    return [r for r in range(1, world_size + 1) if world_size % r == 0 and r * r <= world_size]


def is_own(scheme: Mapping[str, Any]) -> bool:
    """Whether ``scheme``, the section of a configuration, names a scheme that is not of this package."""
    return scheme["_target_"] not in (ONE_D, ONE_AND_HALF_D, OPEN)


def num_parts(scheme: Mapping[str, Any], world_size: int) -> int:
    """The number of block rows into which ``scheme`` cuts a graph: one for each rank, or for as many ranks as its key
    ``replication`` lets share one.

    Args:
        scheme: the section of a configuration.

    Raises:
        ConfigError: the scheme is not chosen yet, or a key of 1D or 1.5D is out of range.
    """
    if scheme["_target_"] == OPEN:
        refuse_open()
    if not is_own(scheme):
        fixed = {"replication": 1} if scheme["_target_"] == ONE_D else {}
        return SchemeOptions.of({**scheme, **fixed}).grid(world_size).num_parts
    return world_size // scheme.get("replication", 1)


def refuse_open() -> NoReturn:
    """Raise the error of a scheme that is not chosen yet."""
    raise ConfigError("scheme=auto is for training, where it is chosen: name a scheme here, as scheme=1d")
