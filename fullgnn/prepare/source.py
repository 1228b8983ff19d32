"""The way of a graph from its dataset to the part that each rank of a job reads.

    rank 0      finds the prepared graph in the cache, or lets it be loaded, arranged and written, once
    a machine   that does not see the folder receives what its ranks need of it, and writes a folder of its own
    each rank   opens the folder, and reads its part

Without a cache the folder is temporary, and one process that is alone has no folder at all.
"""

import json
import logging
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fullgnn.codecs import NO_CONTEXT, CodecContext, FirstLayer, asks_for_first_layer
from fullgnn.config import Config, build, is_encoded
from fullgnn.distributed import (
    World,
    all_gather_objects,
    broadcast_object,
    from_rank0,
    on_every_rank,
    receive_arrays,
    send_arrays,
)
from fullgnn.graph import Graph, dataset_identity, load_dataset
from fullgnn.graph.arrays import graph_to_arrays
from fullgnn.graph.remarks import say
from fullgnn.nn.contract import contract_of, trial_model
from fullgnn.partition.facts import GraphFacts
from fullgnn.partition.folder import FORMAT, LAYOUT, open_folder, write_folder
from fullgnn.partition.partition import base_function, name_of
from fullgnn.partition.prepared import SHARED, Part, PreparedGraph
from fullgnn.prepare.process import PreparationWorker
from fullgnn.storage.cache import Cache
from fullgnn.storage.folder import temporary_folder
from fullgnn.tasks.task import held_out, lacks_examples, refuse_without_examples, takes_links
from fullgnn.telemetry.log import announce
from fullgnn.telemetry.machine import within_memory

log = logging.getLogger(__name__)

KIND = "prepared"
"""Folder, in the cache, of prepared graphs."""

PAIRS = 2
"""Version of the pairs that a task which finds links prepares: increase it when ``graph/links.py`` defines others."""

FILES = "files"
"""Folder, in the cache, of the sizes and times of the files of which graphs were last prepared. Unlike other files of
the cache, these are replaced, and nothing is computed from them."""


@dataclass(frozen=True)
class Preparation:
    """A graph that is to be cut into block rows, and all that the result depends on.

    Every method raises a ``FullGNNError`` for a user error.
    """

    cfg: Config
    num_parts: int
    graph: Graph | None = None
    """On rank 0, the graph that replaces ``cfg.dataset``."""
    to_train: bool = False
    """Whether a graph without labelled training nodes is refused, before it is ordered."""
    identity: dict[str, Any] | None = None
    """On rank 0, ``dataset_identity`` before ``graph`` was loaded, if that is the graph of ``cfg.dataset``; None:
    ``graph`` is known by its arrays."""
    codec_context: CodecContext = NO_CONTEXT
    """On rank 0, what the codec of ``cfg`` knows."""

    @property
    def cache(self) -> Cache:
        return Cache(self.cfg.runtime.cache_dir)

    @property
    def has_pairs(self) -> bool:
        """Whether the parts hold the pairs of a task that finds links."""
        return takes_links(self.cfg.task)

    def here(self) -> PreparedGraph:
        """The prepared graph, for this process alone. With a cache it is a folder there; otherwise it is in memory."""
        if self.cache.folder is not None:
            with Places() as places:
                path, was_kept = self.in_folder(places.new())
                _loaded.cache_clear()
                prepared = _opened(path, was_kept)
                if path.parent.name == KIND:
                    return prepared
            # An order that takes the place of another one is not kept.
        return self.in_memory()

    def in_memory(self) -> PreparedGraph:
        """The prepared graph in the memory of this process."""
        graph, load_time_s = self._load()
        if self.graph is None:
            _loaded.cache_clear()
        return self._arrange(graph, load_time_s)

    def in_folder(self, temporary: Path) -> tuple[Path, bool]:
        """Find the prepared graph in the cache, or make it there, or in the folder ``temporary`` if there is no cache.

        Returns:
            the folder, and whether it was there.
        """
        cache, key = self.cache, ""
        cache.check()
        identity = self._identity(cache)
        if identity is not None:
            key = self._key(**identity)
            if kept := _kept(cache, key):
                return kept, True
            self._say_what_changed(identity)
        graph, load_time_s = self._load()
        if not key and cache.folder is not None:
            key = self._key(name=graph.name, **graph_to_arrays(graph))
            if kept := _kept(cache, key):
                return kept, True
        prepared = self._arrange(graph, load_time_s)
        announce(
            f"{graph.name}: {self.num_parts} parts are written, and their blocks built", graph.num_edges, ["writing"]
        )
        used, asked = prepared.facts.methods, (self.cfg.partition, self.cfg.reorder.method)
        if cache.folder is None or (used.partition, used.reorder) != tuple(name_of(build(node)) for node in asked):
            return write_folder(prepared, temporary), False
        written = write_folder(replace(prepared, key=key), cache.folder / KIND / key)
        if identity is not None and identity["files"]:
            stats = np.array([file[1:] for file in identity["files"]], np.int64)
            cache.store(FILES, self._key_of_paths(identity), {"stats": stats})
        return written, False

    def key_of_files(self, cache: Cache) -> str:
        """The key in ``cache`` of the prepared graph if it is known by its configuration and files; empty if its loader
        does not name the files, or nothing is cached."""
        identity = self._identity(cache)
        return "" if identity is None else cache.key(**identity, **self.settings())

    def _identity(self, cache: Cache) -> dict[str, Any] | None:
        """By which files the graph is known; None: by its arrays, or nothing is cached."""
        if cache.folder is None:
            return None
        return self.identity if self.graph is not None else dataset_identity(self.cfg.dataset)

    def _load(self) -> tuple[Graph, float]:
        """``graph``, or that of ``cfg.dataset``, without what the task holds out, and how long it took in seconds."""
        begin, cfg = time.perf_counter(), self.cfg
        graph = loaded_dataset(cfg.dataset) if self.graph is None else self.graph
        if self.to_train:
            refuse_without_examples(cfg.task, f"the graph {graph.name}", lacks_examples(graph))
        return held_out(cfg.task, graph), time.perf_counter() - begin

    def _arrange(self, graph: Graph, load_time_s: float) -> PreparedGraph:
        from fullgnn.prepare.arrange import arrange  # imported here, since a run often finds a prepared graph

        with within_memory(f"the prepared graph {graph.name}"):
            return arrange(self, graph, load_time_s)

    def _key(self, **what: Any) -> str:
        """The key of the prepared graph ``what``, with these settings."""
        return self.cache.key(**what, **self.settings())

    def settings(self) -> dict[str, Any]:
        from fullgnn.partition import contiguous, nnz
        from fullgnn.reorder import degree, none, rcm, slashburn

        cfg, without_seed = self.cfg, (contiguous, nnz, none, degree, rcm, slashburn)
        functions = base_function(build(cfg.partition)), base_function(build(cfg.reorder.method))
        settings = {
            "prepared_format": FORMAT,
            "partition_node": cfg.partition,
            "reorder_node": asdict(cfg.reorder),
            "num_parts": self.num_parts,
            "order_seed": None if all(function in without_seed for function in functions) else cfg.seed,
            "task_node": [PAIRS, cfg.task] if self.has_pairs else None,
        }
        if not is_encoded(cfg.codec):
            return settings
        return settings | {"codec_node": cfg.codec, "dtype": cfg.runtime.dtype} | self.codec_context.identity(cfg.codec)

    def _key_of_paths(self, identity: dict[str, Any]) -> str:
        """The key of what was last prepared of the same files with the same settings, whatever the files held."""
        paths = [path for path, *_ in identity["files"]]
        return replace(self, codec_context=NO_CONTEXT)._key(dataset=identity["dataset"], paths=paths)

    def _say_what_changed(self, identity: dict[str, Any]) -> None:
        """Log which files have changed since the graph was prepared with the same settings, if it was."""
        if not identity["files"]:
            return

        def kept_stats(arrays: dict[str, np.ndarray]) -> list[list[int]]:
            stats = arrays["stats"]
            if stats.dtype != np.int64 or stats.shape != (len(identity["files"]), 3):
                raise ValueError("it is of other files")
            return stats.tolist()

        kept = self.cache.load(FILES, self._key_of_paths(identity), kept_stats)
        for before, (path, *stats) in zip(kept or [], identity["files"]):
            changes = []
            for what, old, new in zip(("size", "modified", "changed"), before, stats):
                if old != new:
                    show = str if what == "size" else _time
                    changes.append(f"{what} {show(old)} -> {show(new)}")
            if changes:
                said = ", ".join(changes)
                log.info("%s is another file than when it was prepared (%s): it is prepared anew", path, said)


@contextmanager
def prepared_graph(
    preparation: Preparation, world: World, worker: PreparationWorker | None = None, said: Collection[str] = ()
) -> Iterator[PreparedGraph]:
    """The graph of a ``preparation``, as this rank reads it inside the ``with`` block.

    Every rank calls it, and leaves the block together with the others or with the same error.

    Args:
        worker: on rank 0, where the whole graph is loaded, and which is closed then; None: in this process.
        said: names of the remarks on the graph that the run has logged already.

    Raises:
        FullGNNError: a user error, the same on every rank.
    """
    if world.size == 1 or world.dry:
        prepared = preparation.here()
        _say_others(prepared.facts, said)
        yield prepared
        return
    worker = worker or PreparationWorker()
    if world.rank:
        from fullgnn.kernels.support.vectors import load_compiler  # imports numba

        load_compiler()  # takes a while, as long as rank 0 works
    with Places() as places:
        made = from_rank0(lambda: worker.call(preparation.in_folder, places.new()))
        worker.close()
        _loaded.cache_clear()
        path, was_kept = broadcast_object(made)
        path = _on_this_machine(world, path, places)
        prepared = on_every_rank(lambda: _opened(path, was_kept))
        _say_others(prepared.facts, said)
        yield prepared
        all_gather_objects(None)  # all ranks have read what they need


def loaded_dataset(node: dict[str, Any]) -> Graph:
    """The graph of a ``dataset`` node. This process keeps it until it has been prepared, or a file has changed."""
    return _loaded(json.dumps(node), json.dumps(dataset_identity(node)))


@lru_cache(maxsize=1)
def _loaded(node: str, identity: str) -> Graph:
    return load_dataset(json.loads(node))


def _say_others(facts: GraphFacts, said: Collection[str]) -> None:
    """Log the remarks on a graph that have not been ``said``."""
    say(facts.nodes.name, {name: count for name, count in facts.remarks.items() if name not in said})


def _opened(path: Path, was_kept: bool) -> PreparedGraph:
    """The graph in a folder; if an earlier run has prepared it, this run took no time for it."""
    opened = open_folder(path)
    if not was_kept:
        return opened
    methods = replace(opened.facts.methods, partition_time_s=0.0, reorder_time_s=0.0)
    return replace(opened, facts=replace(opened.facts, methods=methods, load_time_s=0.0, prepare_time_s=0.0))


def _kept(cache: Cache, key: str) -> Path | None:
    """The folder of the prepared graph with this ``key``, if there is one."""
    if cache.folder is None or not key:
        return None
    path = cache.folder / KIND / key
    if not sees_folder(path):
        return None
    log.info("the prepared graph is read from %s", path)
    return path


def _time(nanoseconds: int) -> str:
    seconds, rest = divmod(int(nanoseconds), 10**9)
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(seconds))}.{rest:09d}"


class Places(ExitStack):
    """Temporary folders of this process, which are removed at the end of the ``with`` block."""

    def new(self) -> Path:
        """The path of a folder that does not exist yet."""
        return self.enter_context(temporary_folder()) / "graph"


def sees_folder(path: Path) -> bool:
    """Whether this machine has the folder."""
    return (path / LAYOUT).is_file()


def _on_this_machine(world: World, path: Path, places: Places) -> Path:
    """Where this machine has the graph that rank 0 has at ``path``. A machine that does not see it gets its parts."""
    first = world.rank - world.rank % world.local_size
    sees = all_gather_objects(sees_folder(path))
    blind = [leader for leader in range(0, world.size, world.local_size) if not sees[leader]]
    local = path
    whole = open_folder(path) if world.rank == 0 else None
    facts, key = broadcast_object(None if whole is None else (whole.facts, whole.key))
    if whole is not None:
        for leader in blind:
            ranks = range(leader, min(leader + world.local_size, world.size))
            own = {rank * whole.facts.num_parts // world.size for rank in ranks}
            for number in range(whole.facts.num_parts):
                arrays = whole.part(number).arrays
                send_arrays({name: arrays[name] for name in arrays if number in own or name in SHARED}, leader)
    if world.rank in blind:
        received = PreparedGraph(facts, lambda number: Part(receive_arrays(0)), key)
        local = write_folder(received, places.new())
    return Path(all_gather_objects(str(local))[first])


def codec_context(cfg: Config) -> CodecContext:
    """What the codec of ``cfg`` knows: if it asks for that, what the first layer of the model reads."""
    if not (is_encoded(cfg.codec) and asks_for_first_layer(cfg.codec)):
        return NO_CONTEXT
    contract = contract_of(trial_model(cfg))
    if contract.input_propagation is None:
        return NO_CONTEXT
    return CodecContext(first_layer=FirstLayer(contract.input_propagation, contract.input_powers))
