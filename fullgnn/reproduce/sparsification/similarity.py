"""How much the output of each layer resembles that of full features, before and after training: the paper's table 2."""

import logging
import statistics
import time
from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from fullgnn.codecs import State
from fullgnn.config.compose import compose, load_config
from fullgnn.distributed import world_of_one
from fullgnn.engine.evaluate import predict
from fullgnn.engine.trainer import make_training
from fullgnn.graph import Graph
from fullgnn.models.stack import Stack
from fullgnn.prepare.source import arranged
from fullgnn.reproduce.graphs import Case
from fullgnn.reproduce.result import Cell, Curve, Curves, Result, TableRow, number
from fullgnn.reproduce.sparsification.accuracy_config import Config, Model
from fullgnn.reproduce.sparsification.data import cases, with_split
from fullgnn.reproduce.sparsification.training import (
    FLOAT_BYTES,
    FULL,
    Kept,
    encode,
    full_batch,
    kept_ways,
    learnt,
    quiet,
    training_keys,
)

log = logging.getLogger(__name__)

INPUT, RATIO, SAME = "input", "ratio", "same prediction"
INITIAL, TRAINED = "first", "trained"
"""Weights: those of the first epoch, the same with and without a codec; and those after each has trained with its own
features."""


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
    codec_state: State | None = None,
    weights: Mapping[str, Tensor] | None = None,
) -> list[np.ndarray]:
    """The input of a layered model, and the (num_nodes, F) output of each layer without dropout.

    Args:
        codec_state: what the codec has learnt; None: it learns, or there is none.
        weights: the parameters of the model by name; None: the first ones.
    """
    config = load_config(compose(*overrides, "optimizations.cache_aggregation=false"))
    with quiet(), world_of_one(config.runtime) as world:
        job, _, _ = make_training(config, world, prepared=arranged(config, 1, graph, codec_state=codec_state))
        if weights is not None:
            job.model.load_state_dict(weights)
        assert isinstance(job.model, Stack) and isinstance(job.graph.features, Tensor)
        found = [job.graph.features.cpu().numpy()]
        for layer in job.model.layers:
            layer.register_forward_hook(lambda module, args, output: found.append(output.detach().cpu().numpy()))
        predict(job.model, job.graph)
    return found


def run(cfg: Config) -> Result:
    """Compare the outputs at every ratio, with the first weights and after training."""
    found, rows, panels = cases(cfg), [], []
    for case in found:
        for name in cfg.chosen_models:
            for weights in (INITIAL, TRAINED) if case.dataset in cfg.trained_on else (INITIAL,):
                own = _rows(cfg, case, name, weights)
                rows += own
                panels.append(_panel(own))
    columns = dict.fromkeys(column for row in rows for column in row.cells if column != SAME)
    labels = ("graph", "model", "features", "weights")
    return Result(labels, [*columns, SAME], rows, panels, found, [*cfg.absent_codecs, *cfg.notes])


def _rows(cfg: Config, case: Case, name: str, weights: str) -> list[TableRow]:
    model, ways, found = cfg.models[name], kept_ways(cfg, case), dict[Kept, list[list[float]]]()
    for seed in cfg.seeds:
        graph, begin = with_split(case.graph, cfg, seed), time.perf_counter()
        full = _outputs(cfg, case, graph, model, FULL, seed, weights)
        for kept in ways:
            own = _outputs(cfg, case, graph, model, kept, seed, weights)
            values = [similarity(before, after) for before, after in zip(full, own, strict=True)]
            same = 100 * float(np.mean(full[-1].argmax(1) == own[-1].argmax(1)))
            found.setdefault(kept, []).append([*values, same])
        log.info("%s, %s weights, seed %d: %.0f s", case.title, weights, seed, time.perf_counter() - begin)
    rows = []
    for kept, seeds in found.items():
        *values, same = (statistics.fmean(column) for column in zip(*seeds))
        encoding = encode(cfg, case, kept)
        assert encoding is not None
        cells = {RATIO: Cell(FLOAT_BYTES * case.graph.num_features / encoding.row_bytes, origin="derived")}
        for layer, value in enumerate(values):
            column = INPUT if layer == 0 else f"layer {layer}"
            paper = cfg.published(column, codec=kept.name, ratio=kept.ratio, weights=weights, graph=case.dataset)
            cells[column] = Cell(value, paper)
        cells[SAME] = Cell(same, unit="%")
        rows.append(TableRow((case.title, model.title, kept.label, weights), cells))
    return rows


def _outputs(
    cfg: Config, case: Case, graph: Graph, model: Model, kept: Kept, seed: int, weights: str
) -> list[np.ndarray]:
    overrides, state = training_keys(cfg, case, model, kept, seed), learnt(cfg, case, kept)
    if weights == INITIAL:
        return outputs(graph, overrides, state)
    best = full_batch(graph, overrides, state).best
    assert best is not None, "there are validation nodes"
    return outputs(graph, overrides, state, best.model)


def _panel(rows: list[TableRow]) -> Curves:
    """The similarity by layer, a curve for each ratio."""
    curves = []
    for row in rows:
        values = [number(cell.ours) for name, cell in row.cells.items() if name not in (RATIO, SAME)]
        curves.append(Curve(row.labels[2], [float(n) for n in range(len(values))], [value or 0.0 for value in values]))
    graph, model, _, weights = rows[0].labels
    return Curves(f"{graph}, {model}, {weights} weights", "layer; 0: the input", "cosine similarity", curves)
