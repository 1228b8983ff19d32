"""Write checkpoints of a training, and load one, also on another number of ranks.

    replicated state     rank 0 writes it; to resume, rank 0 reads it and sends it to all ranks
    sharded parameters   travel to rank 0 part by part, with the original ids of their nodes; to resume, rank 0 sends
                         each part to all ranks, and a rank takes the rows of its own nodes

So a checkpoint does not depend on the number of ranks, the scheme or the order of the nodes, and no rank ever holds
the rows of all nodes.
"""

import logging
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from torch import Tensor

from fullgnn.codecs import State
from fullgnn.config import Config
from fullgnn.distributed import (
    StopRequest,
    World,
    all_gather_objects,
    all_ranks_meet,
    broadcast_object,
    from_rank0,
)
from fullgnn.engine.saved import check_best, check_state
from fullgnn.engine.state import TrainState
from fullgnn.errors import ConfigError, DataError, quoted
from fullgnn.partition.facts import Fingerprint, NodeFacts
from fullgnn.schemes.base import Scheme
from fullgnn.storage.checkpoint import BEST, STATE, damaged, read, read_rows, writing
from fullgnn.storage.folder import checkpoints, keep_last
from fullgnn.storage.text import of_fields

CODEC = "codec"
"""Key, in a checkpoint, of what the codec of the features has learnt."""

log = logging.getLogger(__name__)


class Checkpoints:
    """Writes the checkpoints of one run. Every rank has one and calls its methods; only rank 0 uses the files.

    Args:
        cfg: its ``run_dir`` is the run folder.
        facts: what identifies the graph, and what predictions need to know of its labels.
        codec_state: on rank 0, what the codec of the features has learnt, with which predictions decode.
    """

    def __init__(self, cfg: Config, world: World, scheme: Scheme, facts: NodeFacts, codec_state: State | None = None):
        self.run_dir = Path(cfg.run_dir)
        self._every, self._keep = cfg.train.checkpoint_every, cfg.train.keep_checkpoints
        self._world, self._scheme = world, scheme
        config = OmegaConf.to_container(OmegaConf.structured(cfg))
        self._about = {"config": config, "graph": asdict(facts.fingerprint), "labels": asdict(facts.labels)}
        if codec_state:
            self._about[CODEC] = {
                name: torch.from_numpy(array) for name, array in codec_state.items() if not name.startswith("_")
            }
        self._last: tuple[Path, int] | None = None  # the latest one, and the best epoch that it holds
        self._earlier = checkpoints(self.run_dir) if world.rank == 0 and not world.dry else []
        """On rank 0, those of an earlier run, which are never removed for what they hold."""
        self._unproven: Path | None = self._earlier[-1] if self._earlier else None
        """On rank 0, the latest one, until a loss has been computed with its parameters."""

    def is_due(self, epoch: int, last: bool) -> bool:
        """Whether a checkpoint is written after ``epoch``, which may be the ``last`` one of the run."""
        return self._every > 0 and (epoch % self._every == 0 or last) and not self._world.dry

    def write(self, state: TrainState, request: StopRequest | None = None) -> str:
        """Write a checkpoint, and remove the oldest ones but one, which ``prove`` removes. Every rank calls it, and
        waits until rank 0 has written it.

        Args:
            request: nothing is written if that of rank 0 has a problem: not all epochs that led here are on the disk.

        Returns:
            on rank 0, why it could not be written, which is also logged; an empty text if it was, and on other ranks.
        """
        gather = self._scheme.gather_parts
        rows = {STATE: state.rows(), BEST: state.best_rows()}
        parts = ((name, part) for name in rows if rows[name] for part in gather(rows[name]))
        problem = ""
        try:
            if self._world.rank == 0 and (request is None or request.problem is None):
                self._write(state, parts)
        except OSError as error:
            problem = f"{self.run_dir}/checkpoints cannot be written ({error.strerror or error})"
            log.warning("%s: there is no checkpoint of %s", problem, progress_of(state))
        for _ in parts:  # that are not written
            pass
        all_ranks_meet()
        return problem

    def prove(self) -> None:
        """A loss that was computed after the latest checkpoint is finite, or the run has ended well: remove the oldest
        checkpoints, which were kept in case the latest one is broken."""
        if self._unproven is not None:
            self._unproven = None
            keep_last(self.run_dir, self._keep)

    def last_good(self) -> str:
        """Remove a checkpoint of this run whose parameters give no finite loss. Every rank calls it.

        Returns:
            on rank 0, the latest checkpoint but such a one; empty if there is none, and on other ranks.
        """
        if self._world.rank != 0:
            return ""
        good = [path for path in checkpoints(self.run_dir) if path != self._unproven]
        if self._unproven is not None and self._unproven not in self._earlier:
            shutil.rmtree(self._unproven, ignore_errors=True)
            self._unproven = None
        return str(good[-1]) if good else ""

    def _write(self, state: TrainState, parts: Iterator[tuple[str, Mapping[str, Any]]]) -> None:
        best = state.best_dict()
        earlier = self._last if best is not None and self._last and self._last[1] == best["epoch"] else None
        with writing(self.run_dir, state.epoch, state.batches.count) as writer:
            writer.write(STATE, {**self._about, STATE: state.state_dict()})
            if earlier is not None:
                writer.take(BEST, earlier[0])
            elif best is not None:
                writer.write(BEST, {BEST: best})
            for name, part in parts:
                if name == STATE or earlier is None:
                    writer.write_rows(name, {key: torch.from_numpy(array) for key, array in part.items()})
        before = self._unproven
        if before is not None and before != writer.target and before not in self._earlier:
            shutil.rmtree(before, ignore_errors=True)  # no loss lies between the two: the parameters are the same
        keep_last(self.run_dir, self._keep + 1)
        self._unproven = writer.target
        self._last = None if best is None else (writer.target, best["epoch"])


def progress_of(state: TrainState) -> str:
    """How far the training has come, in words."""
    batches = f", batch {state.batches.count} of the next" if state.batches.count else ""
    return f"epoch {state.epoch}{batches}"


def restore(checkpoint: Path | None, state: TrainState, node_id: Tensor, graph: Fingerprint) -> None:
    """Let ``state`` go on from ``checkpoint``, which only rank 0 knows. Every rank calls it.

    Args:
        node_id: (num_local_nodes,) int64, original ids of the rows that sharded parameters have on this rank.

    Raises:
        ConfigError, DataError: the checkpoint is of another graph, or cannot be read; the same on every rank.
    """

    def load() -> tuple[dict[str, Any], dict[str, Any] | None]:
        assert checkpoint is not None  # rank 0 knows it
        content = read(checkpoint, STATE)
        with fitting(checkpoint, STATE):
            check_graph(asdict(of_fields(Fingerprint, content.get("graph"))), graph)
            check_state(content.get(STATE), state)
        best = read(checkpoint, BEST).get(BEST) if (checkpoint / f"{BEST}.pt").exists() else None
        if best is not None:
            with fitting(checkpoint, BEST):
                check_best(best, state.state_dict()["model"])
        return content[STATE], best

    state.load_state_dict(*broadcast_object(from_rank0(load)))
    for name, rows in ((STATE, state.rows()), (BEST, state.best_rows())):
        if rows:
            load_rows(checkpoint, name, node_id, rows)


@contextmanager
def fitting(checkpoint: Path, name: str) -> Iterator[None]:
    """Let an error about the content of ``<name>.pt``, which is compared inside the ``with`` block, name that file."""
    try:
        yield
    except DataError as error:
        raise damaged(checkpoint / f"{name}.pt", str(error)) from error


def load_rows(checkpoint: Path | None, name: str, node_id: Tensor, rows: Mapping[str, Tensor]) -> None:
    """Read the rows of this rank's nodes from the parts ``name`` of a checkpoint. Every rank calls it.

    Args:
        checkpoint: on rank 0.
        node_id: (num_local_nodes,) int64, original ids.
        rows: by name, (num_local_nodes, ...), written in place.

    Raises:
        DataError: a part cannot be read, or no part has a node; the same on every rank.
    """
    parts = None if checkpoint is None else read_rows(checkpoint, name)
    ids, order = node_id.cpu().sort()
    has_rows = torch.zeros(len(ids), dtype=torch.bool)

    def next_part() -> dict[str, Any] | None:
        part = None if parts is None else next(parts, None)
        if part is not None and checkpoint is not None:
            _check_part(part, rows, checkpoint, name)
        return part

    while (part := broadcast_object([from_rank0(next_part)])[0]) is not None:
        place = torch.searchsorted(ids, part["node_id"]).clamp(max=max(0, len(ids) - 1))
        own = ids[place] == part["node_id"] if len(ids) else torch.zeros(len(place), dtype=torch.bool)
        local = order[place[own]]
        for key, tensor in rows.items():
            tensor[local.to(tensor.device)] = part[key][own].to(tensor.device, tensor.dtype)
        has_rows[local] = True
    if any(all_gather_objects(not bool(has_rows.all()))):
        raise DataError(
            f"the checkpoint lacks the rows of some nodes, so a file {name}_rows_*.pt is missing: choose another"
            " checkpoint"
        )


def _check_part(part: Mapping[str, Tensor], rows: Mapping[str, Tensor], checkpoint: Path, name: str) -> None:
    """Refuse a part that lacks a tensor, or has one of another type or width than ``rows``."""
    for key, tensor in rows.items():
        given = part.get(key)
        if given is None or given.dtype != tensor.dtype or given.shape[1:] != tensor.shape[1:]:
            raise damaged(checkpoint / f"{name}_rows_*.pt", f"{key} is missing, or of another type or width")


def check_graph(saved: Mapping[str, Any], graph: Fingerprint, setting: str = "resume") -> None:
    """Refuse to go on with another graph.

    Args:
        saved: the fields of the ``Fingerprint`` in the checkpoint.
        setting: the configuration key that names the checkpoint, for the message.

    Raises:
        ConfigError: one line that names the difference.
    """
    for key, now in asdict(graph).items():
        if saved[key] != now:
            difference = f"{key} is {quoted(saved[key])} in the checkpoint and {now} here"
            if key == "digest":
                difference = "its edges, features, labels or splits differ from those of the checkpoint"
            raise ConfigError(f"{setting}: the graph is another one ({difference}): give the same dataset and its keys")
