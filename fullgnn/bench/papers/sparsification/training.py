"""Graphs on which an accuracy can fall, what codecs keep of their features, and trainings of a model, in this process,
with such features; the evaluation reads what the training reads. First, the keys of the targets of accuracy.

    graph_case        features of real words, projected to dense ones, or a look-alike that is not too easy
    CodecSetting      a codec with its keys at a ratio, or features as they are
    EncodedFeatures   what it makes of the features of a graph, once a process
    TrainingJob       a model on a graph, which is trained with such settings
    KnownTraining     what is known of one training: it is kept in the cache, so that an interrupted target of hundreds
                      of them goes on where it was

The projection is a truncated SVD of the (num_nodes, words) matrix, without subtracting the mean: its columns are
X V = U S, by falling singular value, and one number scales all of them to a mean square of 1. They are not whitened, so
that the first columns keep the sizes that they have in the words.
"""

import functools
import hashlib
import itertools
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Optional, cast

import numpy as np
import torch
from scipy.sparse import csr_array

from fullgnn.bench.papers.config import Keys
from fullgnn.bench.papers.graphs import GraphCase, composed_once, given_case, load
from fullgnn.bench.papers.result import Cell, Result, TableRow
from fullgnn.bench.papers.sparsification.sizes import row_bytes
from fullgnn.bench.papers.trainings import epoch_s, fit_here, place, quiet
from fullgnn.codecs import Codec, CodecContext, Features, State, build_codec, encoded, num_bytes
from fullgnn.codecs.topk import GROUP
from fullgnn.config.compose import compose
from fullgnn.engine.fit import FitResult
from fullgnn.errors import ConfigError
from fullgnn.graph import Graph
from fullgnn.graph.sparse_features import NodeFeatures, features_to_arrays
from fullgnn.graph.splits import random_split
from fullgnn.prepare.source import codec_context
from fullgnn.storage.cache import Cache
from fullgnn.telemetry.machine import git_commit


@dataclass
class GraphSource:
    """Where the graph of a dataset comes from, and what its features become."""

    overrides: list[str]
    """Overrides of a run that choose the graph."""
    columns: Optional[int]
    """Its features are projected to so many columns; null: they stay as they are."""
    symmetrize: bool = False


@dataclass
class AccuracyModel:
    """A model, and the way in which it is trained."""

    title: str
    keys: list[str]
    """Overrides that choose it."""
    sampled: bool = False
    """Whether it is trained by batches; false: full-batch."""


@dataclass
class CodecRows:
    """A codec at several ratios."""

    title: str
    keys: list[str]
    """Overrides at every ratio."""
    at: dict[int, list[str]] = field(default_factory=dict)
    """Further overrides, by the ratio that they come nearest. ``{k}`` stands for the k of topk that comes nearest with
    these features, ``{dimensions}`` for their columns over the ratio and ``{bytes}`` for their bytes over the ratio."""
    datasets: Optional[list[str]] = None
    """The datasets to which it is applied; null: all."""


@dataclass
class AccuracyKeys(Keys):
    """The keys of ``conf/reproduce_sparsification_accuracy.yaml``, which explains them."""

    data: dict[str, GraphSource]
    data_seed: int
    val_fraction: float
    models: dict[str, AccuracyModel]
    sampled_training: list[str]
    max_epochs: int
    patience: int
    sampled_max_epochs: int
    sampled_patience: int
    codecs: dict[str, CodecRows]
    chosen_codecs: list[str]
    trained_on: list[str]
    ceiling: float
    best_at: list[int]
    aims: list[dict[str, Any]]


def check_split(cfg: AccuracyKeys) -> None:
    """Refuse parts of the nodes that leave no test nodes.

    Raises:
        ConfigError: one line that names the keys.
    """
    train, val = cfg.train_fraction, cfg.val_fraction
    if not (train > 0 and val > 0 and train + val < 1):
        why = "both must be above 0, and their sum below 1, since the other nodes test"
        raise ConfigError(f"train_fraction={train:g} and val_fraction={val:g} are out of range: {why}")


COMPILING_S = 5.0
"""A codec that takes less than so many seconds is timed again, since the first time may have compiled its loops."""

PROJECTED, TRAINED = "projected", "trained"
"""Folders, in the cache, of projected features and of trainings."""

POWER_ITERATIONS = 4
"""Products with X and its transpose that sharpen the random subspace of the SVD."""


def graph_case(cfg: AccuracyKeys, name: str) -> GraphCase:
    """Find or make one graph; targets of one command share it."""
    known, data = cfg.graphs[name], cfg.data[name]
    is_scaled = cfg.scale is not None and any(key.startswith("dataset.scale=") for key in data.overrides)
    overrides = *data.overrides, *([f"dataset.scale={cfg.scale!r}"] if is_scaled else [])
    graph = _graph(overrides, data.columns, data.symmetrize, cfg.data_seed, cfg.cache_dir)
    return given_case(name, known.title, graph, compose(*overrides).dataset, known.hidden)


@functools.lru_cache(maxsize=4)
def _graph(overrides: tuple[str, ...], columns: int | None, symmetrize: bool, seed: int, folder: str | None) -> Graph:
    graph, cache = load(*overrides, cache_dir=folder), Cache(folder)
    graph = graph.symmetrized() if symmetrize else graph
    if columns is None:
        return graph
    key = cache.key(**features_to_arrays(graph.features), columns=columns, seed=seed, iterations=POWER_ITERATIONS)
    features = cache.load(PROJECTED, key, lambda arrays: arrays["features"])
    if features is None:
        features = projected(graph.features, columns, seed)
        cache.store(PROJECTED, key, {"features": features})
    return replace(graph, features=features)


def projected(features: NodeFeatures, columns: int, seed: int) -> np.ndarray:
    """(num_nodes, columns) float32: a projection of (num_nodes, F) features, see the head of this file.

    Raises:
        ConfigError: there are fewer features, or fewer nodes, than columns.
    """
    from sklearn.utils.extmath import randomized_svd

    if columns > min(features.shape):
        raise ConfigError(f"columns={columns} is more than {min(features.shape)}, what {features.shape} features hold")
    words = csr_array(features)  # most words are in no other node
    left, values, _ = randomized_svd(words, columns, n_iter=POWER_ITERATIONS, random_state=seed)
    projection = left * values
    return (projection / np.sqrt(np.mean(np.square(projection, dtype=np.float64)))).astype(np.float32)


@dataclass(frozen=True)
class CodecSetting:
    """A codec with its keys at a ratio, or features as they are."""

    name: str  # of the codec among the keys of the target
    title: str
    ratio: int  # which its true ratio is near
    keys: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return self.title if not self.keys else f"{self.title} {self.ratio} x"


FULL = CodecSetting("none", "full", 1)
"""Features as they are."""


def cases(cfg: AccuracyKeys) -> list[GraphCase]:
    """Find or make the graphs that ``cfg`` chooses, of which all codecs take their keys: before hours of training."""
    cases = [graph_case(cfg, name) for name in cfg.chosen]
    for case in cases:
        codec_settings(cfg, case)
    return cases


def codec_settings(cfg: AccuracyKeys, case: GraphCase) -> list[CodecSetting]:
    """The chosen codecs at the chosen ratios that they have.

    Raises:
        ConfigError: a codec does not take its keys.
    """
    settings = []
    for name, ratio in itertools.product(cfg.chosen_codecs, cfg.ratios):
        codec = cfg.codecs[name]
        if ratio in codec.at and (codec.datasets is None or case.dataset in codec.datasets):
            keys = codec_keys(codec, ratio, case.graph.num_features)
            build_codec(composed_once(*keys).codec)
            settings.append(CodecSetting(name, codec.title, ratio, tuple(keys)))
    return settings


def codec_keys(codec: CodecRows, ratio: int, num_columns: int) -> list[str]:
    """The overrides of a codec at a ratio, for features of so many columns."""
    width = num_columns / ratio
    numbers = {"k": nearest_k(num_columns, ratio), "dimensions": width, "bytes": row_bytes(num_columns, None) / ratio}

    def filled(place: re.Match[str]) -> str:
        return str(max(1, round(numbers[place[1]])))

    return [re.sub("{(k|dimensions|bytes)}", filled, key) for key in (*codec.keys, *codec.at[ratio])]


def nearest_k(num_columns: int, ratio: float) -> int:
    """The k of the codec topk whose true ratio is nearest to ``ratio``, on a logarithmic scale."""

    def distance(k: int) -> float:
        code = row_bytes(num_columns, k)
        return abs(math.log(row_bytes(num_columns, None) / (code * ratio))) if code else math.inf

    return min(range(1, GROUP // 2 + 1), key=distance)


@dataclass(frozen=True, eq=False)
class EncodedFeatures:
    """The features of a graph, encoded alone, or as they are."""

    row_bytes: float  # of a node: of its row, and of what the codec keeps of some nodes beside their rows
    learnt_bytes: int = 0  # of what the codec has learnt, which do not grow with the graph
    state: State = field(default_factory=dict)  # what the codec has learnt of all features, by name
    seconds: float = 0.0  # to learn and to encode
    digest: str = ""  # of the features that are decoded, if there is a codec


@dataclass(frozen=True)
class KnownTraining:
    """A training that has ended."""

    accuracy: float  # of the test nodes, per cent, at the epoch with the best accuracy of the validation nodes
    best_epoch: int
    curve: list[float]  # accuracy of the validation nodes, per cent, after each epoch
    epoch_s: float  # the median, without evaluations


_ENCODED: dict[tuple[object, ...], EncodedFeatures] = {}
_KNOWN: dict[tuple[object, ...], KnownTraining] = {}
"""What this process has trained: targets of one command share it, and codecs that decode to the same features."""

_commit = functools.cache(git_commit)
"""The commit when this process trains for the first time: a later one is not what the process runs."""


@dataclass(frozen=True, eq=False)
class TrainingJob:
    """A model that is trained on a graph, with full features and with those that codecs keep."""

    cfg: AccuracyKeys
    case: GraphCase
    name: str  # of the model among the keys of the target

    @property
    def model(self) -> AccuracyModel:
        return self.cfg.models[self.name]

    @property
    def title(self) -> str:
        return f"{self.case.title}, {self.model.title}"

    def add(self, result: Result, codec: CodecSetting, cells: dict[str, Cell], **weights: Any) -> TableRow:
        """Add a row with a codec; ``weights``: of the model, where rows differ in them."""
        names = {"graph": self.case.dataset, "model": self.name, "codec": codec.name, "ratio": codec.ratio, **weights}
        return result.add((self.case.title, self.model.title, codec.label, *weights.values()), cells, **names)

    def overrides(self, codec: CodecSetting, seed: int) -> list[str]:
        """The overrides of a training."""
        cfg, sampled = self.cfg, self.model.sampled
        epochs, patience = (cfg.sampled_max_epochs, cfg.sampled_patience) if sampled else (cfg.max_epochs, cfg.patience)
        training = cfg.sampled_training if sampled else cfg.training
        limits = f"train.epochs={epochs}", f"train.patience={patience}"
        hidden = f"model.hidden_channels={self.case.hidden}"
        return [hidden, *self.model.keys, *training, *limits, *codec.keys, *place(cfg, 1, seed, cfg.threads)]

    @property
    def _graph_identity(self) -> tuple[object, ...]:
        """What the graph depends on, without its split."""
        return self.case.dataset, self.case.scale, str(self.cfg.data[self.case.dataset]), self.cfg.data_seed

    @functools.cached_property
    def codecs(self) -> list[CodecSetting]:
        """See ``codec_settings``."""
        return codec_settings(self.cfg, self.case)

    def encoded(self, codec: CodecSetting) -> EncodedFeatures:
        """Let a codec learn and encode all features, once a process."""
        name = "minibatch" if self.model.sampled else "config"
        config = composed_once(*self.overrides(codec, self.cfg.seeds[0]), name=name)
        context = codec_context(config)
        known = (*self._graph_identity, codec.keys, str(context.identity(config.codec)))
        if known not in _ENCODED:
            _ENCODED[known] = _encode(config.codec, context, self.case.graph)
        return _ENCODED[known]

    def context(self, codec: CodecSetting) -> CodecContext:
        """What the codec has learnt of the features of the graph, so that no training learns it anew."""
        return CodecContext(self.encoded(codec).state or None)

    def ratio(self, codec: CodecSetting) -> float:
        """The bytes of features in float32 over those of encoded ones."""
        return row_bytes(self.case.graph.num_features, None) / self.encoded(codec).row_bytes

    def graph(self, seed: int) -> Graph:
        """The graph with the split of ``seed``."""
        graph, cfg = self.case.graph, self.cfg
        return replace(graph, **random_split(graph.labels, cfg.train_fraction, cfg.val_fraction, seed))

    def fit(self, codec: CodecSetting, seed: int) -> FitResult:
        """Train with features as a codec keeps them."""
        return fit_here(self.overrides(codec, seed), self.graph(seed), self.model.sampled, self.context(codec))

    def train(self, codec: CodecSetting, seed: int) -> KnownTraining:
        """Train until the accuracy of the validation nodes no longer rises.

        Args:
            seed: of the split, of the first weights, and of all that is drawn.
        """
        about = self.cfg.train_fraction, self.cfg.val_fraction, *self.overrides(FULL, seed), self.encoded(codec).digest
        known = (*self._graph_identity, *about)
        if known not in _KNOWN:
            commit = None if self.cfg.cache_dir is None else _commit()
            # A training that is kept is of one commit without changes: other code may train to another accuracy.
            cache = Cache(None if commit is None or commit.endswith("-dirty") else self.cfg.cache_dir)
            key = cache.key(commit=commit, torch=torch.__version__, training=list(map(str, known)))
            training = cache.load(TRAINED, key, lambda kept: KnownTraining(**{k: v.tolist() for k, v in kept.items()}))
            if training is None:
                training = _known(self.fit(codec, seed))
                cache.store(TRAINED, key, {name: np.array(value) for name, value in vars(training).items()})
            _KNOWN[known] = training
        return _KNOWN[known]


def _encode(node: Mapping[str, Any], context: CodecContext, graph: Graph) -> EncodedFeatures:
    if build_codec(node, context) is None:
        return EncodedFeatures(row_bytes(graph.num_features, None))
    for _ in range(2):
        codec, begin = cast(Codec, build_codec(node, context)), time.perf_counter()
        with quiet():
            rows, state = encoded(codec, Cache(None), {}, Features(graph.features, "float32", graph))
        seconds = time.perf_counter() - begin
        if seconds >= COMPILING_S:
            break
    decoded = codec.decode(torch.from_numpy(np.ascontiguousarray(rows)), torch.float32)
    digest = hashlib.sha256(np.ascontiguousarray(decoded.numpy()).view(np.uint8).data).hexdigest()
    of_nodes = num_bytes(rows, state)
    learnt = rows.nbytes + sum(array.nbytes for array in state.values()) - of_nodes
    return EncodedFeatures(of_nodes / len(rows), learnt, state, seconds, digest)


def _known(result: FitResult) -> KnownTraining:
    assert result.best is not None, "there are validation nodes"
    seconds = [epoch.cost.time_ms["epoch"] / 1e3 for epoch in result.epochs]
    curve = [epoch.metrics["val_accuracy"] for epoch in result.epochs if epoch.metrics is not None]
    accuracy, *percents = (100 * np.array([result.best.metrics["test_accuracy"], *curve], float)).tolist()  # None: nan
    return KnownTraining(accuracy, result.best.epoch, percents, epoch_s(seconds))
