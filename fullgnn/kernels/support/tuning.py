"""The tuning constants of the GPU kernels. Only a measurement on a GPU can tell their best values.

The defaults below are guesses until they are measured. ``./launch/gpu_bench --part products`` sweeps them and writes
the best values as YAML. A file ``conf/tuning/<name of the GPU>.yaml`` replaces the defaults on every GPU of that name:

    csr:
      elements: 8192             # for every width
      widths:
        16: {elements: 2048}     # for widths up to 16; the smallest listed bound that is not below the width applies

Other constants, which gained little or nothing on an H100, are fixed beside their kernels (docs/decisions.md). The
constants here do not change what is computed, only how the work is distributed over the GPU and thus the order of sums.

Words: a program is one instance of a Triton kernel. An item is a row of A or a part of a row. The lanes of an item take
turns on its edges; at the end the sums of the lanes are added. ptxas is the assembler of CUDA, which assigns registers.
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
    """Constants of ``triton_csr.py``."""

    elements: int = 4096
    """Numbers in the running sums of one program: 32 registers of each of 128 threads."""
    elements_per_warp: int = 1024
    """Numbers in the running sums of one warp, at most."""


@dataclass(frozen=True)
class PanelTuning:
    """Constants of ``panel_plan.py``."""

    planes_piece: int = 64
    """Columns of one program, at most."""
    planes_stages: int = 5
    """Pipeline stages: two for the ids of the columns, the others for rows of X."""
    planes_warps: int = 4
    """Warps of a program."""


@dataclass(frozen=True)
class DenseTuning:
    """Constants of ``kernels/dense/_gradient_gpu.py``, by the result's width."""

    gradient_inputs: int = 128
    """Rows of a tile of X^T G, at most."""
    gradient_columns: int = 128
    """Columns of a tile of X^T G, at most."""
    gradient_rows: int = 32
    """Rows of X and G in one step."""
    gradient_steps: int = 24
    """Steps of a program, at most: with more, sums of equal addends may be off by over 1e-6 (``_gradient_gpu.py``)."""
    gradient_programs: int = 528
    """Programs of a product, at least, if X has enough rows."""
    gradient_warps: int = 8
    """Warps of a tile with a side of more than 64; smaller tiles have half as many."""
    gradient_stages: int = 3
    """Pipeline stages, at most: steps whose operands are loaded at the same time."""
    gradient_shared_bytes: int = 98304
    """Shared memory for these operands, at most: if they need more, there are fewer stages, but at least 2."""
    mask_elements: int = 2048
    """Elements of a tile when only the mask is applied to G."""
    mask_columns: int = 64
    """Columns of such a tile, at most."""
    mask_tiles: int = 16
    """Tiles of a program, one below the other; the program sums their columns."""
    sum_parts: int = 256
    """Parts of a sum that a program adds at once, at most."""
    sum_elements: int = 4096
    """Numbers that such a program adds at once, in all of these parts together."""


PARTS_BYTES = 128 << 20
"""Memory of the parts of a product X^T G that exist at one time, at most, but at least those of one range of rows."""

T = TypeVar("T", CSRTuning, PanelTuning, DenseTuning)


@dataclass(frozen=True)
class ByWidth(Generic[T]):
    """The constants of one kernel: general constants, and special ones for some widths."""

    general: T
    widths: Mapping[int, T] = field(default_factory=dict)
    """Special constants by the largest width to which they apply."""

    def at(self, width: int) -> T:
        """The constants for matrices of ``width`` columns."""
        bounds = [bound for bound in self.widths if width <= bound]
        return self.widths[min(bounds)] if bounds else self.general


@dataclass(frozen=True)
class Tuning:
    """The constants of all kernels."""

    csr: ByWidth[CSRTuning] = ByWidth(CSRTuning())
    panels: ByWidth[PanelTuning] = ByWidth(PanelTuning())
    dense: ByWidth[DenseTuning] = ByWidth(DenseTuning())


_override: list[Tuning] = []


def use(tuning: Tuning | None) -> None:
    """Make every kernel of this process use ``tuning``; None: use the constants of the GPU again."""
    _override[:] = [] if tuning is None else [tuning]


def tuning_for(device: torch.device) -> Tuning:
    """The constants for ``device``: those passed to ``use``, else those of this GPU's file, else the defaults.

    Raises:
        ConfigError: the file of this GPU cannot be read.
    """
    if _override:
        return _override[0]
    return tuning_of_gpu(torch.cuda.get_device_name(device)) if device.type == "cuda" else Tuning()


def file_name(gpu_name: str) -> str:
    """The name of the tuning file of a GPU: ``nvidia-h200.yaml`` for "NVIDIA H200"."""
    return re.sub(r"[^a-z0-9]+", "-", gpu_name.lower()).strip("-") + ".yaml"


@functools.cache
def tuning_of_gpu(name: str) -> Tuning:
    """The constants of ``conf/tuning`` for GPUs of this ``name``, or the defaults."""
    path = conf_dir() / "tuning" / file_name(name)
    return read_tuning(path) if path.exists() else Tuning()


def read_tuning(path: Path) -> Tuning:
    """Read a tuning file.

    Raises:
        ConfigError: the file is not YAML or names an unknown kernel or constant, or PyYAML is not installed.
    """
    try:
        import yaml  # imported here: without a tuning file, PyYAML need not be installed
    except ImportError as error:
        raise ConfigError(f"{path} is YAML, and PyYAML is not installed: pip install pyyaml") from error
    try:
        tree = yaml.safe_load(path.read_text()) or {}
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    return tuning_of(tree, str(path))


def tuning_of(tree: Mapping[str, Any], where: str = "the tuning") -> Tuning:
    """The default constants, overridden by the values of ``tree``, whose format the head of this file shows.

    Args:
        where: origin of ``tree``, for error messages.
    """
    default = Tuning()
    kernels = {kernel.name: getattr(default, kernel.name) for kernel in fields(default)}
    if not isinstance(tree, Mapping) or not kernels.keys() >= tree.keys():
        raise ConfigError(f"{where} must hold one mapping for each of {', '.join(kernels)}, and nothing else")
    return replace(default, **{name: _by_width(kernels[name].general, part, where) for name, part in tree.items()})


def _by_width(general: T, part: Any, where: str) -> ByWidth[T]:
    values = dict(part or {})
    widths = dict(values.pop("widths", None) or {})
    general = _changed(general, values, where)
    return ByWidth(general, {int(bound): _changed(general, dict(own), where) for bound, own in widths.items()})


def _changed(general: T, values: Mapping[str, Any], where: str) -> T:
    known = {constant.name for constant in fields(general)}
    if unknown := sorted(values.keys() - known):
        choices = ", ".join(sorted(known))
        raise ConfigError(f"{where} names unknown constants, {', '.join(unknown)}: choose from {choices}")
    return replace(general, **values)
