"""The configuration as dataclasses; its values are in ``conf/*.yaml``, and ``compose.py`` reads and checks them.

The groups ``reorder``, ``optimizations``, ``train``, ``runtime`` and ``loader`` have a dataclass each. ``dataset``,
``model``, ``task``, ``scheme``, ``partition``, ``kernel``, ``optimizer``, ``schedule`` and ``sampler`` are open: their
YAML names a ``_target_``, and the signature of that target is its schema. So a new dataset or model is one file and one
YAML, and a wrong type is still found before anything runs.
"""

import functools
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Optional, Union

MISSING: Any = "???"  # OmegaConf's mark for a value that the YAML must give; this file does not import OmegaConf


@dataclass
class ReorderConfig:
    """The order of the nodes, ``conf/reorder/``."""

    name: str = MISSING
    scope: str = MISSING
    """``block``: order inside each block row (Algorithm 2 of Miao et al. 2023); ``whole``: the whole graph at once."""
    num_blocks: Optional[int] = MISSING
    """Blocks of the blockwise order; null takes the scheme's number of block rows, p/r."""
    cluster_size: int = MISSING
    """Mean number of nodes in a METIS cluster."""
    method: Any = MISSING
    """Node with the ``_target_`` that computes the order of one block."""


@dataclass
class OptimizationConfig:
    """Options that save work and keep the mathematics: none of them changes the result."""

    spmm_order: str = MISSING
    """``width``: in each layer the one of A (H W) and (A H) W that multiplies fewer columns; ``transform``: always
    A (H W); ``propagate``: always (A H) W."""
    cache_aggregation: Union[bool, str] = MISSING
    """Compute A @ H0 once: the features do not change. ``auto``: where the model supports it; true: the same, and the
    run logs why a model does not."""
    skip_input_gradient: bool = MISSING
    """Do not compute the gradient of the features, which nothing uses."""
    fold_normalization: bool = MISSING
    """Multiply by the 0/1 pattern and scale rows before and after, instead of storing a value for each edge."""
    loss_rows_only: Union[bool, str] = MISSING
    """In training, compute the last layer only for the nodes that carry loss. ``auto`` and true: as above."""
    sparse_features: Union[bool, str] = MISSING
    """Multiply the features as a sparse matrix. ``auto``: where the model supports it, and few of them are not 0; true:
    where the model supports it; false: never."""
    offload: str = MISSING
    """Keep A @ H0 in host memory and copy it to the device in chunks of rows, as it is multiplied: ``always``,
    ``never``, or ``auto``: if it would take more than half of a GPU's free memory."""


TABLES = ("auto", "parquet", "csv", "never")
"""The choices of ``train.prediction_table``."""


@dataclass
class TrainConfig:
    """How long and how a model is trained, ``conf/train/default.yaml``."""

    epochs: int = MISSING
    clip_norm: Optional[float] = MISSING
    """Scale all gradients by one factor if their joint L2 norm is larger than this; null: never."""
    decay_biases: bool = MISSING
    """Whether the weight decay of the optimizer applies to biases, and to other parameters with less than two
    dimensions, too."""
    weight_decay_of: Any = MISSING
    """Weight decay of some parameters, by the beginning of their dotted names, as a mapping; all others have that of
    the optimizer. null: all have it."""
    eval_every: int = MISSING
    """Epochs between two evaluations; 0: evaluate once, after the last epoch."""
    patience: int = MISSING
    """Stop after this number of evaluations without a better validation accuracy; 0: never."""
    checkpoint_every: int = MISSING
    """Epochs between two checkpoints; 0: only a signal that ends the run writes one."""
    keep_checkpoints: int = MISSING
    """Number of checkpoints that are kept, the latest ones; each of them holds the best model so far too."""
    save_predictions: bool = MISSING
    """Write ``predictions.npz`` with the classes and logits of the best-validation epoch."""
    prediction_table: str = "auto"
    """The table with the name and the prediction of each node, beside ``predictions.npz``: ``parquet``, ``csv``,
    ``never``, or ``auto``: Parquet where the nodes or classes have names."""
    statistics: bool = MISSING
    """Count in the run where the non-zeros are: ``tile_density`` and ``structure.npz``. false: a report counts it from
    the prepared graph, if ``runtime.cache_dir`` keeps one."""
    tensorboard: bool = MISSING
    """Write TensorBoard event files of the epochs."""
    table: str = MISSING
    """The table at the end of a run: ``short``, or ``full``, with all measurements."""


@dataclass
class RuntimeConfig:
    """Processes, devices and memory of a run, ``conf/runtime/``."""

    nproc: Optional[int] = MISSING
    """Processes on this machine; null: one for each visible GPU, or one without GPUs. torchrun's count replaces it."""
    device: str = MISSING
    """``cpu``, ``cuda``, or ``auto``: cuda where a GPU is visible."""
    backend: str = MISSING
    """``gloo``, ``nccl``, or ``auto``: nccl on cuda, gloo on cpu."""
    dtype: str = MISSING
    """``float32`` or ``float64``."""
    threads: Optional[int] = MISSING
    """CPU threads of each process; null: this machine's cores divided by its processes."""
    timeout_s: float = MISSING
    """Seconds without a sign of life after which a rank is lost. A rank that works is waited for."""
    cache_dir: Optional[str] = MISSING
    """Folder that keeps node orders, A @ H0 and autotuned choices for later runs; null: keep nothing."""
    cuda_graph: str = MISSING
    """``auto``: on GPUs, capture the training step as a CUDA graph and replay it every epoch; ``never``."""
    dry_run: bool = MISSING
    """Run one ``rank`` of ``world_size`` alone, with collectives that move nothing, to measure its memory and bytes."""
    deterministic: bool = False
    """Get the same bits in every run of one configuration on the same machines; see ``distributed/mesh.py``."""
    precision: str = "float32"
    """``float32``; or ``tf32``, which keeps 11 significant bits of each factor of a dense product on a GPU."""
    independent_tasks: bool = False
    """Let each of several processes that srun or mpirun has started be a run of its own; see
    ``distributed/outer_launcher.py``."""
    check_memory: bool = True
    """Refuse a run that needs more memory than a GPU has, by the estimate of ``costs/auto.py``."""


@dataclass
class Config:
    """The configuration of full-batch training, ``conf/config.yaml``."""

    run_dir: str = MISSING
    """Folder of the run's files."""
    resume: str = MISSING
    """``never``; ``auto``: go on from the latest checkpoint in ``run_dir``, or begin anew if there is none; or the path
    of a run folder or of a checkpoint."""
    overwrite: bool = MISSING
    """Remove the files of an earlier run or sweep in ``run_dir``; false: refuse a folder that holds such files."""
    seed: int = MISSING
    """Seeds the parameters, the dropout masks and the reordering."""
    normalization: str = MISSING
    """``sym``: D^-1/2 (A+I) D^-1/2; ``row``: D^-1 (A+I); ``none``: A+I."""
    self_loops: bool = MISSING
    """Set every diagonal entry of A to 1 before normalising."""
    world_size: Optional[int] = MISSING
    """Number of ranks of a dry run; null in a real run, whose launcher sets the number."""
    rank: int = MISSING
    """The rank that a dry run runs."""
    dataset: Any = MISSING
    model: Any = MISSING
    task: Any = MISSING
    scheme: Any = MISSING
    partition: Any = MISSING
    kernel: Any = MISSING
    codec: Any = MISSING
    """How features are kept and sent; with any choice but ``none`` or one that loses nothing, the run is inexact."""
    optimizer: Any = MISSING
    schedule: Any = MISSING
    """Node with the scheduler of the learning rate and two keys of the linear warm-up before it, ``warmup_epochs`` and
    ``warmup_start``."""
    reorder: ReorderConfig = field(default_factory=ReorderConfig)
    optimizations: OptimizationConfig = field(default_factory=OptimizationConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)


@dataclass
class LoaderConfig:
    """How the batches of sampled training are made."""

    batch_size: int = MISSING
    """Training nodes of a batch, over all ranks together; the batches do not depend on the number of ranks. With
    clusters, the number of groups of clusters."""
    num_workers: int = MISSING
    """Processes of each rank that sample and gather features ahead; 0: the rank does it itself."""
    num_slots: int = MISSING
    """How many batches of each worker may wait."""
    slot_megabytes: float = MISSING
    """Upper limit of the features in a slot; a larger batch travels in several pieces."""
    split: str = MISSING
    """``even``: every batch is cut among the ranks. ``pagraph``: each rank has training nodes of its own, which it
    shuffles, and the batches depend on the number of ranks."""
    precompute: bool = MISSING
    """Compute the product of the features with the whole graph's matrix once, in place of the first layer's."""
    map_features: bool = MISSING
    """Keep the encoded features of all nodes in a file that the ranks map, and not in their memory."""
    sample_on_gpu: bool = MISSING
    """Draw the neighbours on the GPU of the rank, which then holds the structure of the graph; not with workers."""


@dataclass
class MinibatchTrainConfig(TrainConfig):
    """The same for sampled training, ``conf/train/minibatch.yaml``."""

    checkpoint_every_batches: int = MISSING
    """Batches of an epoch between two checkpoints in its midst; 0: none there."""


@dataclass
class MinibatchConfig(Config):
    """A run of sampled training: ``conf/minibatch.yaml``. The groups ``scheme``, ``partition``, ``reorder``, ``kernel``
    and ``optimizations`` are those of the exact evaluation on the full graph."""

    sampler: Any = MISSING
    cache: Any = MISSING
    loader: LoaderConfig = field(default_factory=LoaderConfig)
    train: MinibatchTrainConfig = field(default_factory=MinibatchTrainConfig)


SCHEMAS: dict[str, type[Config]] = {"config": Config, "minibatch": MinibatchConfig}
"""The files of ``conf/`` that describe a run, and their schemas."""
CHOICES: dict[str, tuple[str | bool, ...]] = {
    "normalization": ("sym", "row", "none"),
    "reorder.scope": ("block", "whole"),
    "optimizations.spmm_order": ("width", "transform", "propagate"),
    "optimizations.cache_aggregation": ("auto", True, False),
    "optimizations.loss_rows_only": ("auto", True, False),
    "optimizations.sparse_features": ("auto", True, False),
    "optimizations.offload": ("auto", "always", "never"),
    "train.prediction_table": TABLES,
    "train.table": ("short", "full"),
    "loader.split": ("even", "pagraph"),
    "runtime.device": ("auto", "cpu", "cuda"),
    "runtime.backend": ("auto", "gloo", "nccl"),
    "runtime.dtype": ("float32", "float64"),
    "runtime.precision": ("float32", "tf32"),
    "runtime.cuda_graph": ("auto", "never"),
}
"""The values that a key may have, where it may have only some."""
OF_SPLIT: dict[str, Any] = {
    "split": Optional[Union[int, str]],
    "train_fraction": Optional[float],
    "val_fraction": Optional[float],
    "train_per_class": Optional[int],
    "num_val": Optional[int],
    "num_folds": Optional[int],
    "fold": Optional[int],
    "groups": Optional[str],
    "split_seed": Optional[int],
}
"""The keys of ``conf/dataset/base.yaml`` and their types, where the ``load`` of a dataset does not have them itself."""


def conf_dir() -> Path:
    """Folder of the YAML files: inside the package when it is installed, beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "conf"
    return installed if installed.is_dir() else package.parent / "conf"


def is_encoded(codec: Mapping[str, Any]) -> bool:
    """Whether features are kept otherwise than they are, by the section ``codec`` of a configuration."""
    return codec["_target_"] != "fullgnn.codecs.Unencoded"


def build(node: Mapping[str, Any], **arguments: Any) -> Any:
    """Call the ``_target_`` of a configuration node with its keys and ``arguments``.

    ``name`` labels the choice in records; it is passed on only to a target with a parameter ``name``. With
    ``_partial_`` the result is a ``functools.partial`` of the target.
    """
    target = target_of(node)
    keys = {key: value for key, value in node.items() if not key.startswith("_")}
    if "name" not in inspect.signature(target).parameters:
        keys.pop("name", None)
    if node.get("_partial_"):
        return functools.partial(target, **keys, **arguments)
    return target(**keys, **arguments)


_GIVEN: ContextVar[Mapping[str, Any] | None] = ContextVar("_GIVEN", default=None)


@contextmanager
def given_targets(targets: Mapping[str, Any]) -> Iterator[None]:
    """Let the names of ``targets`` stand for objects that a caller has given, inside the ``with`` block of this thread.

    Such an object need not be one that can be imported.
    """
    before = _GIVEN.set(targets)
    try:
        yield
    finally:
        _GIVEN.reset(before)


def target_of(node: Mapping[str, Any]) -> Any:
    """The function or class that the ``_target_`` of a configuration node names: imported, unless it was given."""
    target, given = str(node["_target_"]), _GIVEN.get() or {}
    if target in given:
        return given[target]
    module, _, name = target.rpartition(".")
    return getattr(import_module(module), name)
