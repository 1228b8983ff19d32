"""Training from a folder in which the features were prepared, with the codec and without it: memory, bytes, hits."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fullgnn.config import Config as RunConfig
from fullgnn.config import MinibatchConfig
from fullgnn.config.compose import compose, load_config
from fullgnn.distributed import world_of_one
from fullgnn.engine.fit import fit
from fullgnn.engine.run import set_up
from fullgnn.engine.step_runner import StepRunner
from fullgnn.prepare.folder import open_folder
from fullgnn.prepare.source import Preparation
from fullgnn.reproduce.graphs import Case
from fullgnn.reproduce.result import Bars, Cell, Result, Series, TableRow, number
from fullgnn.reproduce.sparsification.apart import codec_keys, full_batch_keys, map_graph, sampled_keys, write_graph
from fullgnn.reproduce.sparsification.config import Config, cases
from fullgnn.reproduce.sparsification.fresh import Fresh, call_fresh
from fullgnn.sampling.setup import set_up_sampled
from fullgnn.storage.folder import temporary_folder
from fullgnn.telemetry.meter import Meter

WAYS = ("full", "sparse")
PEAK, READ, HITS = "peak memory", "read", "hits"
COLUMNS = tuple(f"{what}, {way}" for what in (PEAK, READ, HITS) for way in WAYS)
FULL_BATCH = "full-batch"
EPOCH = 2
"""The epoch of sampled training whose reads are counted: the rows of an exact cache have changed before it."""


@dataclass(frozen=True)
class Reads:
    """What an epoch reads of the features."""

    num_bytes: int  # of the prepared features in full-batch training; else of the rows that an epoch fetches
    hits: float = math.nan  # of the rows that batches read, per cent, those that the cache holds


def run(cfg: Config) -> Result:
    """Train in processes of their own on what earlier ones have prepared."""
    found, rows, panels, details = cases(cfg), [], [], dict[str, Any]()
    for one in found:
        measured = {way: train(cfg, one, codec) for way, codec in zip(WAYS, ([], codec_keys(cfg, one)))}
        own = []
        for training in measured[WAYS[0]]:
            cells = {}
            for way in WAYS:
                fresh = measured[way][training]
                cells[f"{PEAK}, {way}"] = Cell(fresh.own_bytes / 1e9, unit="GB")
                cells[f"{READ}, {way}"] = Cell(fresh.value.num_bytes / 1e9, unit="GB")
                if not math.isnan(fresh.value.hits):
                    cells[f"{HITS}, {way}"] = Cell(fresh.value.hits, unit="%")
            own.append(TableRow((one.title, training), cells))
        rows += own
        labels = [row.labels[1] for row in own]
        series = [Series(way, [number(row.cells[f"{READ}, {way}"].ours) for row in own], []) for way in WAYS]
        panels.append(Bars(f"{one.title}: features that are read", "GB", labels, series))
        details[one.title] = {
            way: {training: vars(fresh) | {"value": vars(fresh.value)} for training, fresh in processes.items()}
            for way, processes in measured.items()
        }
    return Result(("graph", "training"), COLUMNS, rows, panels, found, cfg.notes, details)


def train(cfg: Config, one: Case, codec: Sequence[str]) -> dict[str, Fresh]:
    """By training, the process that trains; the features are those that ``codec`` keeps."""
    threads = cfg.threads or 1
    with temporary_folder() as folder:
        write_graph(one.graph, folder)
        about = folder, one.graph.num_classes
        full_batch = [*full_batch_keys(cfg, one), *codec, "train.epochs=1", "train.eval_every=0"]
        in_file = ["loader.map_features=true", f"runtime.cache_dir={folder / 'cache'}"]
        sampled = [*sampled_keys(cfg, one), *codec, *in_file]
        call_fresh(prepare, *about, full_batch, threads=threads)
        found = {FULL_BATCH: call_fresh(train_full_batch, folder, full_batch, threads=threads)}
        call_fresh(train_sampled, *about, sampled, 0, threads=threads)  # leaves the rows in the cache
        found["sampled"] = call_fresh(train_sampled, *about, sampled, EPOCH, threads=threads)
        for share in cfg.cache_shares:
            megabytes = share / 100 * 4 * one.graph.num_nodes * one.graph.num_features / 1e6
            for cache in cfg.caches:
                keys = [*sampled, f"cache={cache}", f"cache.megabytes={megabytes!r}"]
                title = f"sampled, cache={cache} of {share:g} %"
                found[title] = call_fresh(train_sampled, *about, keys, EPOCH, threads=threads)
        return found


def prepare(folder: Path, num_classes: int, keys: list[str]) -> None:
    """Write the prepared graph of full-batch training, in one part, to ``folder``."""
    Preparation(_config(keys), 1, map_graph(folder, num_classes)).in_folder(folder / "prepared")


def train_full_batch(folder: Path, keys: list[str]) -> Reads:
    """Train an epoch on the prepared graph."""
    path, run = folder / "prepared", _config(keys)
    with world_of_one(run.runtime) as world:
        fit(StepRunner(set_up(run, world, Meter(world.device), prepared=open_folder(path))))
    return Reads(sum(file.stat().st_size for file in path.glob("part_*/features.npy")))


def train_sampled(folder: Path, num_classes: int, keys: list[str], num_epochs: int) -> Reads:
    """Train so many epochs on features in a file, and count what the last one reads."""
    run = load_config(compose(*keys, name="minibatch"))
    assert isinstance(run, MinibatchConfig)
    counts: dict[str, int] = {}
    with world_of_one(run.runtime) as world:
        meter = Meter(world.device)
        training = set_up_sampled(run, world, meter, map_graph(folder, num_classes))
        for epoch in range(1, num_epochs + 1):
            meter.take()
            for batch in training.loader.epoch(epoch):
                training.step(batch).read()
            counts = meter.take().counts
        training.loader.close()
    fetched = counts.get("fetched_bytes", 0) + counts.get("filled_bytes", 0)
    has_cache = run.cache["name"] != "none"
    return Reads(fetched, 100 * counts.get("hits", 0) / max(1, counts.get("input_rows", 0)) if has_cache else math.nan)


def _config(keys: list[str]) -> RunConfig:
    return load_config(compose(*keys))
