"""How each rank of a job comes to its part of the graph.

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
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fullgnn.codecs import NOTHING, Told, build_codec
from fullgnn.config import Config, build
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
from fullgnn.prepare.facts import GraphFacts
from fullgnn.prepare.folder import FORMAT, LAYOUT, open_folder, write_folder
from fullgnn.prepare.prepared import SHARED, Part, PreparedGraph
from fullgnn.prepare.process import PreparationWorker
from fullgnn.reorder.methods import base_function, name_of
from fullgnn.storage.cache import Cache
from fullgnn.storage.memory import within_memory
from fullgnn.storage.temporary import temporary_folder
from fullgnn.tasks.build import held_out, lacks_examples, refuse_without_examples, takes_links
from fullgnn.telemetry.log import announce

log = logging.getLogger(__name__)

KIND = "prepared"
"""Folder, in the cache, of prepared graphs."""

PAIRS = 2
"""Version of the pairs that a task which finds links prepares: increase it when ``graph/links.py`` defines others."""

FILES = "files"
"""Folder, in the cache, of the sizes and times of the files of which graphs were last prepared. Unlike other files of
the cache, these are replaced, and nothing is computed from them."""


@contextmanager
def prepared_graph(
    cfg: Config,
    world: World,
    num_parts: int,
    work: PreparationWorker | None = None,
    graph: Graph | None = None,
    to_train: bool = False,
    said: Collection[str] = (),
    identity: dict[str, Any] | None = None,
    told: Told = NOTHING,
) -> Iterator[PreparedGraph]:
    """The graph of ``cfg`` in ``num_parts`` block rows, as this rank reads it inside the ``with`` block.

    Every rank calls it, and leaves the block together with the others or with the same error.

    Args:
        work: on rank 0, where the whole graph is loaded, and which is closed then; None: in this process.
        graph: on rank 0, the graph that replaces ``cfg.dataset``.
        to_train: whether a graph without labelled training nodes is refused, before it is ordered.
        said: names of the remarks on the graph that the run has logged already.
        identity: on rank 0, ``dataset_identity`` before ``graph`` was loaded, if that is the graph of ``cfg.dataset``;
            None: ``graph`` is known by its arrays.
        told: on rank 0, what the codec of ``cfg`` is told.

    Raises:
        FullGNNError: a user error, the same on every rank.
    """
    if world.size == 1 or world.dry:
        prepared = prepare_here(cfg, num_parts, graph, to_train, identity, told)
        _say_others(prepared.facts, said)
        yield prepared
        return
    work = work or PreparationWorker()
    if world.rank:
        from fullgnn.kernels.support.vectors import load_compiler  # imports numba

        load_compiler()  # takes a while, as long as rank 0 works
    with Places() as places:
        made = from_rank0(
            lambda: work.call(prepare_folder, cfg, num_parts, places.new(), graph, to_train, identity, told)
        )
        work.close()
        _loaded.cache_clear()
        path, was_kept = broadcast_object(made)
        path = _on_this_machine(world, path, places)
        prepared = on_every_rank(lambda: _opened(path, was_kept))
        _say_others(prepared.facts, said)
        yield prepared
        all_gather_objects(None)  # all ranks have read what they need


def _say_others(facts: GraphFacts, said: Collection[str]) -> None:
    """Log the remarks on a graph that have not been ``said``."""
    say(facts.nodes.name, {name: count for name, count in facts.remarks.items() if name not in said})


def prepare_here(
    cfg: Config,
    num_parts: int,
    graph: Graph | None = None,
    to_train: bool = False,
    identity: dict[str, Any] | None = None,
    told: Told = NOTHING,
) -> PreparedGraph:
    """The graph of ``cfg``, or ``graph``, in ``num_parts`` block rows, for this process alone.

    With a cache it is a folder there; otherwise it is in memory. ``prepared_graph`` explains ``identity``
    and ``told``.
    """
    if Cache(cfg.runtime.cache_dir).folder is None:
        return arranged(cfg, num_parts, graph, to_train, told)
    with Places() as places:
        path, was_kept = prepare_folder(cfg, num_parts, places.new(), graph, to_train, identity, told)
        _loaded.cache_clear()
        found = _opened(path, was_kept)
        if path.parent.name == KIND:
            return found
    # An order that takes the place of another one is not kept.
    return arranged(cfg, num_parts, graph, to_train, told)


def prepare_folder(
    cfg: Config,
    num_parts: int,
    temporary: Path,
    graph: Graph | None = None,
    to_train: bool = False,
    identity: dict[str, Any] | None = None,
    told: Told = NOTHING,
) -> tuple[Path, bool]:
    """Find the prepared graph in the cache, or make it there, or in the folder ``temporary`` if there is no cache.

    Args:
        identity, told: see ``prepared_graph``.

    Returns:
        the folder, and whether it was there.

    Raises:
        FullGNNError: a user error.
    """
    cache = Cache(cfg.runtime.cache_dir)
    cache.check()
    if graph is None and cache.folder is not None:
        identity = dataset_identity(cfg.dataset)
    key = _key_of_identity(cfg, num_parts, cache, identity, told)
    if found := _kept(cache, key):
        return found, True
    _say_what_changed(cfg, num_parts, cache, identity)
    begin = time.perf_counter()
    graph = _graph(cfg, graph, to_train)
    load_time_s = time.perf_counter() - begin
    key = key or _key_of_arrays(cfg, num_parts, cache, graph, told)
    if found := _kept(cache, key):
        return found, True
    from fullgnn.prepare.arrange import arrange  # imported here, since a run often finds a prepared graph

    with within_memory(f"the prepared graph {graph.name}"):
        prepared = arrange(cfg, num_parts, graph, cache, takes_links(cfg.task), load_time_s, told)
    announce(f"{graph.name}: {num_parts} parts are written, and their blocks built", graph.num_edges, ["writing"])
    used = prepared.facts.methods.partition, prepared.facts.methods.reorder
    if cache.folder is None or used != (name_of(build(cfg.partition)), name_of(build(cfg.reorder.method))):
        return write_folder(prepared, temporary), False
    written = write_folder(replace(prepared, key=key), cache.folder / KIND / key)
    _remember_files(cfg, num_parts, cache, identity)
    return written, False


def _opened(path: Path, was_kept: bool) -> PreparedGraph:
    """The graph in a folder; if an earlier run has prepared it, this run took no time for it."""
    found = open_folder(path)
    if not was_kept:
        return found
    methods = replace(found.facts.methods, partition_time_s=0.0, reorder_time_s=0.0)
    return replace(found, facts=replace(found.facts, methods=methods, load_time_s=0.0, prepare_time_s=0.0))


def arranged(
    cfg: Config,
    num_parts: int,
    graph: Graph | None = None,
    to_train: bool = False,
    told: Told = NOTHING,
) -> PreparedGraph:
    """The graph of ``cfg``, or ``graph``, in ``num_parts`` block rows, in the memory of this process."""
    from fullgnn.prepare.arrange import arrange

    begin, given = time.perf_counter(), graph
    graph = _graph(cfg, graph, to_train)
    load_time_s, cache = time.perf_counter() - begin, Cache(cfg.runtime.cache_dir)
    if given is None:
        _loaded.cache_clear()
    with within_memory(f"the prepared graph {graph.name}"):
        return arrange(cfg, num_parts, graph, cache, takes_links(cfg.task), load_time_s, told)


def loaded_dataset(node: dict[str, Any]) -> Graph:
    """The graph of a ``dataset`` node. This process keeps it until it has been prepared, or a file has changed."""
    return _loaded(json.dumps(node), json.dumps(dataset_identity(node)))


@lru_cache(maxsize=1)
def _loaded(node: str, identity: str) -> Graph:
    return load_dataset(json.loads(node))


def _graph(cfg: Config, graph: Graph | None, to_train: bool) -> Graph:
    """``graph``, or that of ``cfg.dataset``, without what the task holds out."""
    graph = loaded_dataset(cfg.dataset) if graph is None else graph
    if to_train:
        refuse_without_examples(cfg.task, f"the graph {graph.name}", lacks_examples(graph))
    return held_out(cfg.task, graph)


def _kept(cache: Cache, key: str) -> Path | None:
    """The folder of the prepared graph with this ``key``, if there is one."""
    if cache.folder is None or not key:
        return None
    path = cache.folder / KIND / key
    if not _sees(path):
        return None
    log.info("the prepared graph is read from %s", path)
    return path


def key_of_files(cfg: Config, num_parts: int, cache: Cache, told: Told = NOTHING) -> str:
    """The key of a prepared graph that is known by its configuration and files; empty if its loader does not name the
    files, or the ``cache`` has no folder."""
    identity = None if cache.folder is None else dataset_identity(cfg.dataset)
    return _key_of_identity(cfg, num_parts, cache, identity, told)


def _key_of_identity(
    cfg: Config,
    num_parts: int,
    cache: Cache,
    identity: dict[str, Any] | None,
    told: Told = NOTHING,
) -> str:
    return "" if identity is None else cache.key(**identity, **_of_preparation(cfg, num_parts, told))


def _key_of_arrays(cfg: Config, num_parts: int, cache: Cache, graph: Graph, told: Told = NOTHING) -> str:
    """The key of a graph that is known by its arrays."""
    if cache.folder is None:
        return ""
    return cache.key(name=graph.name, **graph_to_arrays(graph), **_of_preparation(cfg, num_parts, told))


def _key_of_paths(cfg: Config, num_parts: int, cache: Cache, identity: dict[str, Any]) -> str:
    """The key of what was last prepared of the same files with the same settings, whatever the files held."""
    paths = [path for path, *_ in identity["files"]]
    return cache.key(dataset=identity["dataset"], paths=paths, **_of_preparation(cfg, num_parts))


def _remember_files(cfg: Config, num_parts: int, cache: Cache, identity: dict[str, Any] | None) -> None:
    """Keep the sizes and times of the files of which a graph has been prepared, for ``_say_what_changed``."""
    if identity is not None and identity["files"]:
        stats = np.array([one[1:] for one in identity["files"]], np.int64)
        cache.store(FILES, _key_of_paths(cfg, num_parts, cache, identity), {"stats": stats})


def _say_what_changed(cfg: Config, num_parts: int, cache: Cache, identity: dict[str, Any] | None) -> None:
    """Log which files have changed since the graph was prepared with the same settings, if it was."""
    if identity is None or not identity["files"]:
        return

    def kept_stats(arrays: dict[str, np.ndarray]) -> list[list[int]]:
        stats = arrays["stats"]
        if stats.dtype != np.int64 or stats.shape != (len(identity["files"]), 3):
            raise ValueError("it is of other files")
        return stats.tolist()

    kept = cache.load(FILES, _key_of_paths(cfg, num_parts, cache, identity), kept_stats)
    for before, (path, *stats) in zip(kept or [], identity["files"]):
        changes = []
        for what, old, new in zip(("size", "modified", "changed"), before, stats):
            if old != new:
                changes.append(f"{what} {old} -> {new}" if what == "size" else f"{what} {_time(old)} -> {_time(new)}")
        if changes:
            log.info("%s is another file than when it was prepared (%s): it is prepared anew", path, ", ".join(changes))


def _time(nanoseconds: int) -> str:
    seconds, rest = divmod(int(nanoseconds), 10**9)
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(seconds))}.{rest:09d}"


def _of_preparation(cfg: Config, num_parts: int, told: Told = NOTHING) -> dict[str, Any]:
    from fullgnn.partition import contiguous, nnz
    from fullgnn.reorder import degree, none, rcm, slashburn

    without_seed = contiguous, nnz, none, degree, rcm, slashburn
    functions = base_function(build(cfg.partition)), base_function(build(cfg.reorder.method))
    known = {
        "prepared_format": FORMAT,
        "partition_node": cfg.partition,
        "reorder_node": asdict(cfg.reorder),
        "num_parts": num_parts,
        "order_seed": None if all(function in without_seed for function in functions) else cfg.seed,
        "task_node": [PAIRS, cfg.task] if takes_links(cfg.task) else None,
    }
    if build_codec(cfg.codec) is None:
        return known
    return known | {"codec_node": cfg.codec, "dtype": cfg.runtime.dtype} | told.identity(cfg.codec)


class Places(ExitStack):
    """Temporary folders of this process, which are removed at the end of the ``with`` block."""

    def new(self) -> Path:
        """The path of a folder that does not exist yet."""
        return self.enter_context(temporary_folder()) / "graph"


def _sees(path: Path) -> bool:
    """Whether this machine has the folder."""
    return (path / LAYOUT).is_file()


def _on_this_machine(world: World, path: Path, places: Places) -> Path:
    """Where this machine has the graph that rank 0 has at ``path``. A machine that does not see it gets its parts."""
    first = world.rank - world.rank % world.local_size
    sees = all_gather_objects(_sees(path))
    blind = [leader for leader in range(0, world.size, world.local_size) if not sees[leader]]
    local = path
    facts: GraphFacts = broadcast_object(open_folder(path).facts if world.rank == 0 else None)
    if world.rank == 0 and blind:
        whole = open_folder(path)
        for leader in blind:
            ranks = range(leader, min(leader + world.local_size, world.size))
            own = {rank * whole.facts.num_parts // world.size for rank in ranks}
            for number in range(whole.facts.num_parts):
                arrays = whole.part(number).arrays
                send_arrays({name: arrays[name] for name in arrays if number in own or name in SHARED}, leader)
    if world.rank in blind:
        received = PreparedGraph(facts, lambda number: Part(receive_arrays(0)))
        local = write_folder(received, places.new())
    return Path(all_gather_objects(str(local))[first])
