"""What codecs keep of the features, and one training, in this process, with such features; the evaluation reads what
the training reads.

What is known of a training is kept in the cache: an interrupted target of hundreds of them goes on where it was."""

import functools
import hashlib
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch

from fullgnn.bench.papers.graphs import GraphCase
from fullgnn.bench.papers.sparsification.data import AccuracyKeys, AccuracyModel, CodecRows, with_split
from fullgnn.bench.papers.trainings import epoch_s, fit_here, place, quiet
from fullgnn.codecs import NO_CONTEXT, Codec, CodecContext, Features, Learning, State, build_codec
from fullgnn.codecs.encoded import has_state, rows_in_memory
from fullgnn.codecs.topk import GROUP
from fullgnn.config.compose import compose, load_config
from fullgnn.engine.fit import FitResult
from fullgnn.prepare.source import codec_context
from fullgnn.storage.cache import Cache
from fullgnn.telemetry.machine import git_commit

FLOAT_BYTES = 4

COMPILING_S = 5.0
"""A codec that takes less than so many seconds is timed again, since the first time may have compiled its loops."""


@dataclass(frozen=True)
class Kept:
    """How features are kept: a codec with its keys, or as they are."""

    name: str  # of the codec among the keys of the target
    title: str
    ratio: int  # which its true ratio is near
    keys: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return self.title if not self.keys else f"{self.title} {self.ratio} x"


FULL = Kept("none", "full", 1)
"""Features as they are."""


def kept_ways(cfg: AccuracyKeys, case: GraphCase) -> list[Kept]:
    """The chosen codecs at the chosen ratios that they have.

    Raises:
        ConfigError: a codec does not take its keys.
    """
    ways = [
        Kept(name, codec.title, ratio, tuple(codec_keys(codec, ratio, case.graph.num_features)))
        for name, codec in ((name, cfg.codecs[name]) for name in cfg.chosen_codecs)
        if codec.datasets is None or case.dataset in codec.datasets
        for ratio in cfg.ratios
        if ratio in codec.at
    ]
    for kept in ways:  # before hours of training
        build_codec(load_config(compose(*kept.keys)).codec)
    return ways


def codec_keys(codec: CodecRows, ratio: int, num_columns: int) -> list[str]:
    """The overrides of a codec at a ratio, for features of so many columns."""
    numbers = {
        "{k}": nearest_k(num_columns, ratio),
        "{dimensions}": max(1, round(num_columns / ratio)),
        "{bytes}": max(1, round(FLOAT_BYTES * num_columns / ratio)),
    }
    keys = [*codec.keys, *codec.at[ratio]]
    for name, number in numbers.items():
        keys = [key.replace(name, str(number)) for key in keys]
    return keys


def nearest_k(num_columns: int, ratio: float) -> int:
    """The k of the codec topk whose true ratio is nearest to ``ratio``, on a logarithmic scale."""

    def distance(k: int) -> float:
        widths = [min(GROUP, num_columns - first) for first in range(0, num_columns, GROUP)]
        kept = 2 * sum(min(k, width // 2) for width in widths)
        return abs(math.log(FLOAT_BYTES * num_columns / (kept * ratio))) if kept else math.inf

    return min(range(1, GROUP // 2 + 1), key=distance)


def training_keys(cfg: AccuracyKeys, case: GraphCase, model: AccuracyModel, kept: Kept, seed: int) -> list[str]:
    """The overrides of a training."""
    limits = (cfg.sampled_max_epochs, cfg.sampled_patience) if model.sampled else (cfg.max_epochs, cfg.patience)
    return [
        f"model.hidden_channels={case.hidden}",
        *model.keys,
        *(cfg.sampled_training if model.sampled else cfg.training),
        f"train.epochs={limits[0]}",
        f"train.patience={limits[1]}",
        *kept.keys,
        *place(cfg, 1, seed, cfg.threads),
    ]


def identity(cfg: AccuracyKeys, case: GraphCase) -> tuple[object, ...]:
    """What the graph of a case depends on."""
    return case.dataset, case.scale, str(cfg.data[case.dataset]), cfg.data_seed


@dataclass(frozen=True, eq=False)
class EncodedFeatures:
    """The features of a graph, encoded alone."""

    code_bytes: int  # of a node's row
    state: State  # what the codec has learnt of all features, by name
    seconds: float  # to learn and to encode
    num_nodes: int
    digest: str  # of the features that are decoded

    @property
    def row_bytes(self) -> float:
        """Bytes of a node: of its row, and of what the codec keeps of some nodes beside their rows."""
        return self.code_bytes + sum(self.state[name].nbytes for name in self._of_nodes) / self.num_nodes

    @property
    def learnt_bytes(self) -> int:
        """Bytes of what the codec has learnt, which do not grow with the graph."""
        return sum(array.nbytes for name, array in self.state.items() if name not in self._of_nodes)

    @property
    def _of_nodes(self) -> list[str]:
        return [name for name in self.state if name.startswith("_")]


_ENCODED: dict[tuple[object, ...], EncodedFeatures | None] = {}


def encode(cfg: AccuracyKeys, case: GraphCase, model: AccuracyModel, kept: Kept) -> EncodedFeatures | None:
    """Let a codec learn and encode all features, once a process; None: there is none."""
    overrides = training_keys(cfg, case, model, kept, cfg.seeds[0])
    config = load_config(compose(*overrides, name="minibatch" if model.sampled else "config"))
    context = codec_context(config)
    known = (*identity(cfg, case), kept.keys, str(context.identity(config.codec)))
    if known not in _ENCODED:
        _ENCODED[known] = _encode(config.codec, context, case)
    return _ENCODED[known]


def context_of(cfg: AccuracyKeys, case: GraphCase, model: AccuracyModel, kept: Kept) -> CodecContext:
    """What the codec has learnt of the features of a graph, so that no training learns it anew."""
    encoding = encode(cfg, case, model, kept)
    return NO_CONTEXT if encoding is None else CodecContext(encoding.state or None)


def _encode(node: Mapping[str, Any], context: CodecContext, case: GraphCase) -> EncodedFeatures | None:
    if build_codec(node, context) is None:
        return None
    for _ in range(2):
        codec, begin = cast(Codec, build_codec(node, context)), time.perf_counter()
        with quiet():
            rows = rows_in_memory(codec, Features(case.graph.features, "float32", case.graph))
        seconds = time.perf_counter() - begin
        if seconds >= COMPILING_S:
            break
    state = cast(Learning, codec).state() if has_state(codec) else {}
    decoded = codec.decode(torch.from_numpy(np.ascontiguousarray(rows)), torch.float32)
    digest = hashlib.sha256(np.ascontiguousarray(decoded.numpy()).view(np.uint8).data).hexdigest()
    return EncodedFeatures(rows[:1].nbytes, state, seconds, len(rows), digest)


KIND = "trained"
"""Folder, in the cache, of trainings."""

DIRTY = "-dirty"
"""At the end of ``git_commit`` where files have changed since."""


@dataclass(frozen=True)
class KnownTraining:
    """A training that has ended."""

    accuracy: float  # of the test nodes, per cent, at the epoch with the best accuracy of the validation nodes
    best_epoch: int
    curve: list[float]  # accuracy of the validation nodes, per cent, after each epoch
    epoch_s: float  # the median, without evaluations


@functools.cache
def _commit() -> str | None:
    """The commit when this process trains for the first time: a later one is not what the process runs."""
    return git_commit()


_KNOWN: dict[tuple[object, ...], KnownTraining] = {}
"""What this process has trained: targets of one command share it, and codecs that decode to the same features."""


def train_one(cfg: AccuracyKeys, case: GraphCase, model: AccuracyModel, kept: Kept, seed: int) -> KnownTraining:
    """Train until the accuracy of the validation nodes no longer rises.

    Args:
        seed: of the split, of the first weights, and of all that is drawn.
    """
    encoding = encode(cfg, case, model, kept)
    read = "" if encoding is None else encoding.digest
    split = cfg.train_fraction, cfg.val_fraction
    known = (*identity(cfg, case), *split, *training_keys(cfg, case, model, FULL, seed), read)
    if known not in _KNOWN:
        commit = None if cfg.cache_dir is None else _commit()
        # A training that is kept is of one commit: other code may train to another accuracy.
        cache = Cache(None if commit is None or commit.endswith(DIRTY) else cfg.cache_dir)
        key = cache.key(commit=commit, torch=torch.__version__, training=list(map(str, known)))
        training = cache.load(KIND, key, lambda arrays: KnownTraining(**{k: v.tolist() for k, v in arrays.items()}))
        if training is None:
            training = _known(fit_with(cfg, case, model, kept, seed))
            cache.store(KIND, key, {name: np.array(value) for name, value in vars(training).items()})
        _KNOWN[known] = training
    return _KNOWN[known]


def fit_with(cfg: AccuracyKeys, case: GraphCase, model: AccuracyModel, kept: Kept, seed: int) -> FitResult:
    """Train on the split of ``seed``, with features as a codec keeps them."""
    context = NO_CONTEXT if model.sampled else context_of(cfg, case, model, kept)
    overrides = training_keys(cfg, case, model, kept, seed)
    return fit_here(overrides, with_split(case.graph, cfg, seed), model.sampled, context)


def _known(result: FitResult) -> KnownTraining:
    assert result.best is not None, "there are validation nodes"
    seconds = [epoch.cost.time_ms["epoch"] / 1e3 for epoch in result.epochs]
    curve = [epoch.metrics["val_accuracy"] for epoch in result.epochs if epoch.metrics is not None]
    accuracy, *percents = (100 * np.array([result.best.metrics["test_accuracy"], *curve], float)).tolist()  # None: nan
    return KnownTraining(accuracy, result.best.epoch, percents, epoch_s(seconds))
