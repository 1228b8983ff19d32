"""The constants of the GPU kernels that only a GPU can judge, in one place.

The defaults below are guesses until a GPU has measured them. ``./launch/gpu_bench --part products`` sweeps them and
writes the winners as YAML; as ``conf/tuning/<name of the GPU>.yaml`` they replace the defaults on every GPU of that
name:

    csr:
      elements: 8192             # for every width
      widths:
        16: {elements: 2048}     # for widths up to 16: the smallest bound that holds the width is taken

No constant changes what is computed, only how it is spread over the GPU, and the order of sums with it.
"""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from fullgnn.config import conf_dir
from fullgnn.errors import ConfigError


@dataclass(frozen=True)
class CSRTuning:
    """Of ``triton_csr.py``."""

    bins: tuple[int, ...] = (4, 16, 64)
    """Edges of a row, at most, in each bin; the last bin has the rest."""
    heavy: int = 512
    """Edges beyond which a row is cut into parts, or fewer, so that no lane adds too many: see ``reading.CHAIN``."""
    part: int = 512
    """Edges of one part, or fewer."""
    elements: int = 4096
    """Of the sums of one program: 32 registers of each of 128 threads."""
    min_lanes: int = 16
    max_lanes: int = 128
    """Of a program; a lane adds every so many edges of an item."""
    elements_per_warp: int = 1024
    """At most."""
    registers: int = 96
    """The most registers of a thread where columns come in several pieces and X is float32. Without this limit, ptxas
    takes fewer, for more programs at a time, and spills a word."""


@dataclass(frozen=True)
class PersistentTuning:
    """Of ``persistent.py``. Lanes are powers of two."""

    short_edges: int = 32
    """Of a short row, at most; several of these share a program."""
    short_lanes: int = 4
    """That share a short row, at most."""
    heavy: int = 512
    """Edges beyond which a row is cut into parts of as many, or fewer: see ``reading.CHAIN``."""
    columns_a_pass: int = 0
    """Of X, a multiple of 8 up to 128; 0: 128."""
    elements: int = 2048
    """Of the sums of one program."""
    min_lanes: int = 16
    max_lanes: int = 64
    """Of a program: half its threads. With more, an index is read by one thread for others, which wait for it."""
    programs_a_processor: int = 5
    """That run at one time on a multiprocessor: threads get as many registers as that leaves them, 96 for five."""
    num_stages: int = 1
    """Of the pipeline of rows of X through shared memory; 1: they go to registers, and no thread waits for another."""
    num_warps: int = 4


@dataclass(frozen=True)
class PanelTuning:
    """Of ``panels.py``."""

    split_groups: int = 96
    """Groups beyond which a panel is cut into parts."""
    part_groups: int = 64
    """Groups of one part: 2,048 rows of X."""
    chain_groups: int = 4
    """Groups that tensor cores add up before the sum is added to float32 numbers: at most 8, since they may cut off."""
    piece: int = 64
    """Columns of one program: 64, or 128, which has few registers to spare."""
    num_stages: int = 3
    num_warps: int = 4
    """Of panels of up to 64 rows; those of 128 rows take twice as many."""
    planes_piece: int = 64
    """Columns of one program where X is split before, or half as many: see ``panel_plan.planes_columns``."""
    planes_stages: int = 5
    """There: two of them are for the columns' ids, the others for rows of X."""
    planes_warps: int = 4
    """There, for panels of any number of rows."""
    planes_registers: int = 96
    """The most registers of a thread there, for panels of 32 rows. Without this limit, ptxas takes fewer, for more
    programs at a time, and spills words at some widths."""


@dataclass(frozen=True)
class DenseTuning:
    """Of ``kernels/dense/_dense_gpu.py`` and ``kernels/dense/_gradient_gpu.py``; widths are those of the result."""

    product_rows: int = 128
    """Of a tile of X W."""
    product_rows_with_dropout: int = 64
    """Of such a tile of ``product_columns`` columns that ends with a dropout, whose words take registers, too."""
    product_columns: int = 128
    """Of such a tile, at most; as many or half as many where W is wider."""
    product_depth: int = 32
    """Columns of X in one step."""
    product_warps: int = 8
    """Of a tile of more than 32 columns; narrower ones have half."""
    product_stages: int = 3
    """Steps whose operands are under way."""
    gradient_inputs: int = 128
    """Rows of a tile of X^T G, at most."""
    gradient_columns: int = 128
    """Columns of such a tile, at most."""
    gradient_rows: int = 32
    """Rows of X and G in one step."""
    gradient_steps: int = 24
    """Of a program, at most: with more, sums of equal addends may be off by more than 1e-6 (``_gradient_gpu.py``)."""
    gradient_programs: int = 528
    """That a product has at least, where X has rows enough."""
    gradient_warps: int = 8
    """Of a tile with a side of more than 64; smaller ones have half."""
    gradient_stages: int = 3
    """Steps whose operands are under way, at most."""
    gradient_shared_bytes: int = 98304
    """Of shared memory for them: fewer steps are under way where they take more, at least 2."""
    mask_elements: int = 2048
    """Of a tile of a gradient."""
    mask_columns: int = 64
    """Of such a tile, at most."""
    mask_tiles: int = 16
    """Of a program, one below the other: it adds their columns."""
    sum_parts: int = 256
    """Of the parts of a sum, those that a program adds at once, at most."""
    sum_elements: int = 4096
    """Numbers that such a program adds at once, of all these parts."""


T = TypeVar("T", CSRTuning, PersistentTuning, PanelTuning, DenseTuning)


@dataclass(frozen=True)
class ByWidth(Generic[T]):
    """The constants of one kernel: those of every width, and other values for some widths."""

    general: T
    widths: Mapping[int, T] = field(default_factory=dict)
    """By the largest width that they hold for."""

    def at(self, width: int) -> T:
        """The constants for matrices of ``width`` columns."""
        bounds = [bound for bound in self.widths if width <= bound]
        return self.widths[min(bounds)] if bounds else self.general


@dataclass(frozen=True)
class Tuning:
    """The constants of all kernels."""

    csr: ByWidth[CSRTuning] = ByWidth(CSRTuning())
    persistent: ByWidth[PersistentTuning] = ByWidth(PersistentTuning())
    panels: ByWidth[PanelTuning] = ByWidth(PanelTuning())
    dense: ByWidth[DenseTuning] = ByWidth(DenseTuning())


_used: list[Tuning] = []


def use(tuning: Tuning | None) -> None:
    """Have every kernel of this process take ``tuning``; None: that of the GPU again."""
    _used[:] = [] if tuning is None else [tuning]


def tuning_for(device: torch.device) -> Tuning:
    """The constants for ``device``: what ``use`` was given, else the file of this GPU, else the defaults.

    Raises:
        ConfigError: the file of this GPU cannot be read.
    """
    if _used:
        return _used[0]
    return _of_gpu(torch.cuda.get_device_name(device)) if device.type == "cuda" else Tuning()


def file_name(gpu_name: str) -> str:
    """The name of the file for a GPU: "NVIDIA H200" is ``nvidia-h200.yaml``."""
    return re.sub(r"[^a-z0-9]+", "-", gpu_name.lower()).strip("-") + ".yaml"


@functools.cache
def _of_gpu(name: str) -> Tuning:
    path = conf_dir() / "tuning" / file_name(name)
    return read_tuning(path) if path.exists() else Tuning()


def read_tuning(path: Path) -> Tuning:
    """Read a tuning file.

    Raises:
        ConfigError: it is no YAML, or names a kernel or a constant that there is not; or PyYAML is not installed.
    """
    try:
        import yaml  # here, not above: only a file needs it, and a machine without one may lack it
    except ImportError as error:
        raise ConfigError(f"{path} is YAML, and PyYAML is not installed: pip install pyyaml") from error
    try:
        tree = yaml.safe_load(path.read_text()) or {}
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    return tuning_of(tree, str(path))


def tuning_of(tree: Mapping[str, Any], where: str = "the tuning") -> Tuning:
    """The defaults with the values of a tree such as the one above in their place.

    Args:
        where: the tree comes from, for messages.
    """
    default = Tuning()
    kernels = {one.name: getattr(default, one.name) for one in fields(default)}
    if not isinstance(tree, Mapping) or not kernels.keys() >= tree.keys():
        raise ConfigError(f"{where} must hold one mapping for each of {', '.join(kernels)}, and nothing else")
    return replace(default, **{name: _by_width(kernels[name].general, part, where) for name, part in tree.items()})


def _by_width(general: T, part: Any, where: str) -> ByWidth[T]:
    values = dict(part or {})
    widths = dict(values.pop("widths", None) or {})
    general = _changed(general, values, where)
    return ByWidth(general, {int(bound): _changed(general, dict(own), where) for bound, own in widths.items()})


def _changed(general: T, values: Mapping[str, Any], where: str) -> T:
    known = {one.name for one in fields(general)}
    if unknown := sorted(values.keys() - known):
        raise ConfigError(f"{where} names {', '.join(unknown)}: choose from {', '.join(sorted(known))}")
    changes: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    return replace(general, **changes)
