"""How much the output of each layer resembles that of full features, before and after training: the paper's table 2."""

import logging
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from fullgnn.bench.papers.graphs import GraphCase
from fullgnn.bench.papers.result import OURS_AND_PAPER, Cell, Result, TableRow, bars, transposed
from fullgnn.bench.papers.sparsification.data import AccuracyKeys, AccuracyModel, with_split
from fullgnn.bench.papers.sparsification.training import (
    FLOAT_BYTES,
    FULL,
    Kept,
    context_of,
    encode,
    fit_with,
    kept_ways,
    training_keys,
)
from fullgnn.bench.papers.trainings import run_here
from fullgnn.codecs import NO_CONTEXT, CodecContext
from fullgnn.engine.passes import predict
from fullgnn.graph import Graph
from fullgnn.models.stack import Stack

log = logging.getLogger(__name__)

INPUT, RATIO, SAME = "input", "ratio", "same prediction"
FIRST, SHARED, OWN = "first", "full's", "own"
WEIGHTS = (FIRST, SHARED, OWN)
"""Weights: those before any training; those that full features have trained; and those that each has trained with its
own features, from the same first ones. Only in the last block do the two models differ."""


def similarity(full: np.ndarray, kept: np.ndarray) -> float:
    """The cosine of two rows, the mean over the nodes; a node without a direction in one of the two does not count.

    Args:
        full, kept: (num_nodes, F).
    """
    products = np.einsum("ij,ij->i", full, kept, dtype=np.float64)
    lengths = np.sqrt(np.einsum("ij,ij->i", full, full, dtype=np.float64))
    lengths *= np.sqrt(np.einsum("ij,ij->i", kept, kept, dtype=np.float64))
    counts = lengths > 0
    return float(np.mean(products[counts] / lengths[counts]))


def outputs(
    graph: Graph,
    overrides: Sequence[str],
    context: CodecContext = NO_CONTEXT,
    weights: Mapping[str, Tensor] | None = None,
) -> list[np.ndarray]:
    """The input of a layered model, and the (num_nodes, F) output of each layer without dropout.

    Args:
        context: what the codec has learnt.
        weights: the parameters of the model by name; None: the first ones.
    """
    with run_here([*overrides, "optimizations.cache_aggregation=false"], graph, context) as run:
        if weights is not None:
            run.model.load_state_dict(weights)
        assert isinstance(run.model, Stack) and isinstance(run.graph.features, Tensor)
        rows = [run.graph.features.cpu().numpy()]
        for layer in run.model.layers:
            layer.register_forward_hook(lambda module, args, output: rows.append(output.detach().cpu().numpy()))
        predict(run)
    return rows


def similarities(result: Result, cfg: AccuracyKeys, case: GraphCase) -> None:
    """Compare the outputs at every ratio, with the first weights and after training."""
    for model in map(cfg.models.__getitem__, cfg.chosen_models):
        rows: dict[str, dict[str, TableRow]] = {}  # by the weights and by what is kept
        for (weights, kept), seeds in _similarities(cfg, case, model).items():
            *means, same = (statistics.fmean(column) for column in zip(*seeds))
            encoding = encode(cfg, case, model, kept)
            assert encoding is not None
            cells = {RATIO: Cell(FLOAT_BYTES * case.graph.num_features / encoding.row_bytes, origin="derived")}
            cells |= {f"layer {layer}" if layer else INPUT: Cell(mean) for layer, mean in enumerate(means)}
            names: dict[str, Any] = {"codec": kept.name, "ratio": kept.ratio, "weights": weights, "graph": case.dataset}
            labels = (case.title, model.title, kept.label, weights)
            result.add(labels, cells | {SAME: Cell(same, unit="%")}, **names)
            rows.setdefault(weights, {})[kept.label] = result.rows[-1]
        for weights, own in rows.items():
            layers = [row for row in transposed(own) if row.labels[0] not in (RATIO, SAME)]
            title = f"{case.title}, {model.title}, {weights} weights"
            result.panels += bars(title, "cosine similarity", layers, list(own), OURS_AND_PAPER)
    result.columns = [*dict.fromkeys(name for row in result.rows for name in row.cells if name != SAME), SAME]


def _similarities(
    cfg: AccuracyKeys, case: GraphCase, model: AccuracyModel
) -> dict[tuple[str, Kept], list[list[float]]]:
    """By the weights and by what is kept: of each seed, the similarity of each layer and the part of the predictions
    that are the same."""
    by_weights: dict[tuple[str, Kept], list[list[float]]] = {}

    def trained(kept: Kept) -> Mapping[str, Tensor]:
        """The parameters after training, at the epoch with the best validation."""
        best = fit_with(cfg, case, model, kept, seed).best
        assert best is not None, "there are validation nodes"
        return best.model

    def outputs_of(kept: Kept, weights: Mapping[str, Tensor] | None) -> list[np.ndarray]:
        keys = training_keys(cfg, case, model, kept, seed)
        return outputs(graph, keys, context_of(cfg, case, model, kept), weights)

    for seed in cfg.seeds:
        graph, begin, trains = with_split(case.graph, cfg, seed), time.perf_counter(), case.dataset in cfg.trained_on
        shared = trained(FULL) if trains else None
        for weights in WEIGHTS if trains else (FIRST,):
            of_full = None if weights == FIRST else shared
            full = outputs_of(FULL, of_full)
            for kept in kept_ways(cfg, case):
                own = outputs_of(kept, trained(kept) if weights == OWN else of_full)
                values = [similarity(before, after) for before, after in zip(full, own, strict=True)]
                same = 100 * float(np.mean(full[-1].argmax(1) == own[-1].argmax(1)))
                by_weights.setdefault((weights, kept), []).append([*values, same])
        log.info("%s, %s, seed %d: %.0f s", case.title, model.title, seed, time.perf_counter() - begin)
    return by_weights
