"""The folder of a run: an earlier run that is resumed, and the files that a run leaves. Only rank 0 looks at them.

resume=never   a new run, in a folder without one
resume=auto    the run in ``run_dir``: from its latest checkpoint, or anew if it has none
resume=PATH    another run, or a checkpoint of one; its epochs are copied to ``run_dir``

The epochs are written as they come, and a run that stops says how to go on with it.

The graph of ``train_graph`` stays beside its run, so that the run can be predicted with, and gone on with. Until the
set-up has ended it is a temporary file, since a run that fails before its training leaves nothing; from then on it is
``graph.npz`` in the run folder, which ``config.yaml`` and the checkpoints name.
"""

import logging
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from fullgnn.config import Config
from fullgnn.config.compose import resolved_schedule
from fullgnn.config.overrides import quote
from fullgnn.config.trust import CALLING, calls_of, check_calls, plain_config
from fullgnn.distributed import StopRequest, World, broadcast_object, from_rank0
from fullgnn.engine.checkpoints import fitting, progress_of
from fullgnn.engine.fit import EpochOutput, FitResult
from fullgnn.engine.state import TrainState
from fullgnn.errors import ConfigError, DataError, TrainingStopped, quoted, reason_of
from fullgnn.graph.datasets import CONTENTS, UNKNOWN, contents_of
from fullgnn.kernels.support.compile_time import compile_clock
from fullgnn.startup import attempt
from fullgnn.storage.checkpoint import STATE, check, find, read
from fullgnn.storage.folder import (
    CHECKPOINTS,
    GRAPH,
    check_folder,
    checkpoints,
    has_own_graph,
    remove_after,
    replacing,
    writing_to,
)
from fullgnn.storage.record import RunFolder, RunRecord, read_record, unwritable
from fullgnn.storage.text import parse_yaml, read_text
from fullgnn.telemetry.log import Progress
from fullgnn.telemetry.meter import EpochRecord

log = logging.getLogger(__name__)

AUTO, NEVER = "auto", "never"

LEAST_COMPILING_S = 0.5
"""Compiling that takes less is not logged."""

_FIXED = (
    "model",
    "task",
    "optimizer",
    "schedule",
    "seed",
    "train.clip_norm",
    "train.decay_biases",
    "train.weight_decay_of",
    "runtime.dtype",
    "sampler",
    "codec",
    "loader.batch_size",
    "loader.split",
    "loader.precompute",
)
"""Keys and groups of the configuration that a resumed run shares with the run before."""


def check_run_dir(cfg: Config, quiet: bool = False) -> Path | None:
    """Find the checkpoint to go on from, and refuse a run folder with another run. Called before anything is loaded.

    Args:
        quiet: whether remarks are left to another process, which calls this function after this one.

    Returns:
        the checkpoint; None: the run begins anew.

    Raises:
        ConfigError, DataError: the folder holds another run, or there is no checkpoint that fits ``cfg``.
    """
    checkpoint, run_dir = _checkpoint(cfg, quiet), Path(cfg.run_dir)
    inside = checkpoint is None or checkpoint.parent.parent.resolve() == run_dir.resolve()
    if checkpoint is not None and inside:
        checkpoint = run_dir / CHECKPOINTS / checkpoint.name  # as the folder is called here: a path may have links
    try:
        check_folder(run_dir, cfg.overwrite, resuming=cfg.resume != NEVER and inside)
    except ConfigError as error:
        if attempt() and cfg.resume == NEVER:
            raise ConfigError(f"{error}; torchrun has started the ranks again: resume=auto goes on then") from error
        raise
    return checkpoint


def open_folder(cfg: Config, checkpoint: Path | None, epoch: int, num_batches: int = 0) -> RunFolder:
    """Create the run folder, or cut the one in which the run goes on to what it was after ``epoch``."""
    resolved = OmegaConf.to_yaml(OmegaConf.structured(cfg))
    after, file = None if cfg.resume == NEVER else epoch, cfg.dataset.get("path")
    graph = Path(file) if isinstance(file, str) else None
    folder = RunFolder(cfg.run_dir, resolved, cfg.overwrite, after, checkpoint, graph)
    remove_after(folder.path, epoch, num_batches)
    return folder


def finished_run(cfg: Config) -> RunRecord | None:
    """With ``resume=auto``, the record in the run folder, if a run of this very configuration has finished there."""
    folder = Path(cfg.run_dir)
    if cfg.resume != AUTO or not all((folder / name).is_file() for name in ("config.yaml", "record.json")):
        return None
    try:
        config = plain_config(parse_yaml(read_text(folder / "config.yaml"), folder / "config.yaml"))
    except DataError as error:
        log.warning("%s: it is not compared with this run", error)
        return None
    both = config, OmegaConf.to_container(OmegaConf.structured(cfg))
    before, now = ({**values, "resume": AUTO, "run_dir": ""} for values in both)  # type: ignore[dict-item]
    if before != now:
        return None
    log.info("%s holds this run already, which has finished", cfg.run_dir)
    return read_record(folder)


def finished_before(cfg: Config) -> RunRecord | None:
    """``finished_run`` on every rank; only rank 0 looks. Under torchrun, nothing else has looked before."""
    if cfg.resume != AUTO:
        return None
    (record,) = broadcast_object(from_rank0(lambda: [finished_run(cfg)]))
    return record


def finished_record(cfg: Config, state: TrainState) -> RunRecord | None:
    """The record in the run folder, if that run has finished and nothing is left to train; None otherwise."""
    folder = Path(cfg.run_dir)
    if not state.is_finished(cfg.train) or not (folder / "record.json").is_file():
        return None
    log.info("%s holds a finished run of %d epochs: nothing is left to train", cfg.run_dir, state.epoch)
    return read_record(folder)


def kept_dataset(cfg: Config) -> dict[str, Any]:
    """``cfg.dataset`` as the files of the run have it: a graph of ``train_graph`` lies in the run folder. Other
    datasets stay where they are."""
    digest = contents_of(cfg.dataset.get(CONTENTS), cfg.dataset.get("path"))
    if digest is None:
        return cfg.dataset
    path = str(Path(cfg.run_dir).absolute() / GRAPH)
    contents = UNKNOWN if digest == UNKNOWN else f"{digest} {path}"
    return {**cfg.dataset, "path": path, CONTENTS: contents}


def check_place(cfg: Config, checkpoint: Path | None) -> None:
    """Refuse to replace a ``graph.npz`` of the user's. Only rank 0 calls it, before anything is loaded.

    Args:
        checkpoint: from which the run goes on, whose graph must be the same.

    Raises:
        ConfigError: there is such a file in the run folder.
    """
    folder = Path(cfg.run_dir).absolute()
    goes_on = checkpoint is not None and checkpoint.parent.parent == folder
    if kept_dataset(cfg) != cfg.dataset and (folder / GRAPH).exists() and not goes_on and not has_own_graph(folder):
        raise ConfigError(
            f"run_dir={cfg.run_dir} holds a {GRAPH} that train_graph has not written, and the graph of this run would"
            " replace it: move it, or choose another run_dir"
        )


def keep_graph(loaded: Mapping[str, Any], cfg: Config) -> None:
    """Move the file of the graph from where a run has ``loaded`` it to where it is kept. Only rank 0 calls it.

    Args:
        loaded: ``cfg.dataset`` before it was the ``kept_dataset``.

    Raises:
        ConfigError: the run folder cannot be written, or has too little room.
    """
    if loaded == cfg.dataset or loaded["path"] == cfg.dataset["path"]:
        return
    with writing_to("run_dir", cfg.run_dir), replacing(Path(cfg.dataset["path"])) as temporary:
        shutil.move(loaded["path"], temporary)


@contextmanager
def epoch_outputs(
    world: World, cfg: Config, folder: RunFolder | None, first: int, request: StopRequest
) -> Iterator[list[EpochOutput]]:
    """Where the record of each epoch goes, inside the ``with`` block. Every rank calls it.

    Args:
        folder: on rank 0.
        first: number of the first epoch.
        request: asks all ranks to stop when a file of rank 0 cannot be written.
    """
    events = None
    if cfg.train.tensorboard:
        from fullgnn.telemetry.events import EventFiles

        events = from_rank0(lambda: EventFiles(Path(cfg.run_dir), first))
    simulated = f"rank {world.rank} of {world.size}, simulated" if world.dry else ""
    progress = Progress(cfg.train.epochs, visible=world.rank == 0 or world.dry, first=first, simulated=simulated)
    files = _Files(Path(cfg.run_dir), [output for output in (folder, events) if output is not None], request)
    compiling = CompilingRemark()
    try:
        yield [compiling, progress, files]
    finally:  # also where the training diverges
        compiling.close()
        progress.close()
        if events is not None:
            with files.writing():
                events.close()


class _Files:
    """The files of a run that grow with each epoch. One that cannot be written ends the training, on all ranks."""

    def __init__(self, run_dir: Path, files: list[EpochOutput], request: StopRequest):
        self._run_dir, self._files, self._request = run_dir, files, request

    def add_epoch(self, record: EpochRecord) -> None:
        with self.writing():
            for file in self._files:
                if self._request.problem is None:
                    file.add_epoch(record)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Note an ``OSError`` of the block as the reason to stop."""
        try:
            yield
        except OSError as error:
            self._request.problem = self._request.problem or unwritable(self._run_dir, error)


def write_to(folder: RunFolder | None, write: Callable[[RunFolder], None]) -> None:
    """Let rank 0, which has the ``folder``, write to it. Every rank calls it.

    Raises:
        ConfigError: it cannot be written; the same on every rank.
    """
    from_rank0(lambda: None if folder is None else write(folder))


class CompilingRemark:
    """Logs that the kernels of the first epoch are being compiled, and how long it took; nothing if a cache has them.

    It counts from its construction to the first epoch that is read, with its evaluation.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._clock = self._stack.enter_context(compile_clock(_tell_of_compiling))

    def add_epoch(self, record: EpochRecord) -> None:
        if self._clock.seconds >= LEAST_COMPILING_S:
            kept = "later runs find them in a cache" if self._clock.is_kept else "no folder is writable that keeps them"
            log.info("compiling kernels took %.1f s of the first epoch; %s", self._clock.seconds, kept)
        self.close()

    def close(self) -> None:
        self._stack.close()
        self._clock.seconds = 0.0


def _tell_of_compiling() -> None:
    log.info("compiling kernels for this machine, which takes some seconds ...")


def end_if_stopped(cfg: Config, state: TrainState, result: FitResult, request: StopRequest) -> None:
    """Raise if the training ended before its last epoch, or rank 0 could not write what it left. Every rank calls it.

    Raises:
        ConfigError: rank 0 could not write to the run folder; the same on every rank.
        TrainingStopped: a signal has asked a rank to stop; the message says how to go on.
    """
    from_rank0(request.raise_problem)
    if not result.stopped:
        return
    line = f"stopped at {progress_of(state)}"
    if cfg.runtime.dry_run:
        line += " of a dry run"
    elif result.unwritten:
        line += f", without a checkpoint of it: {result.unwritten}"
    else:
        line += f"; resume with: resume=auto run_dir={quote(cfg.run_dir)}"
    raise TrainingStopped(line, signal=request.signal or signal.SIGTERM)


def _checkpoint(cfg: Config, quiet: bool) -> Path | None:
    """The checkpoint that ``resume`` names. With ``auto`` it is the latest one in ``run_dir`` that can be read."""
    if cfg.resume == NEVER:
        return None
    if cfg.overwrite:
        raise ConfigError(f"overwrite=true removes the run that resume={cfg.resume} goes on with: give one of the two")
    run_dir = Path(cfg.run_dir)
    candidates = checkpoints(run_dir)[::-1] if cfg.resume == AUTO else [find(cfg.resume)]
    if not candidates:
        if not quiet:
            log.info("resume=auto: run_dir=%s holds no checkpoint, so the run begins anew", run_dir)
        return None
    problems: list[DataError] = []
    for checkpoint in candidates:
        try:
            check(checkpoint)
            with fitting(checkpoint, STATE):
                saved = plain_config(read(checkpoint, STATE).get("config"))
        except DataError as error:
            problems.append(error)
            continue
        for problem in [] if quiet else problems:
            log.warning("%s", problem)
        with fitting(checkpoint, STATE):
            _check_settings(saved, OmegaConf.to_container(OmegaConf.structured(cfg)))
        return checkpoint
    for problem in problems[1:]:  # the first one is raised, also if ``quiet``: no process comes after this one
        log.warning("%s", problem)
    raise problems[0]


def _check_settings(saved: Any, now: Any) -> None:
    """Refuse a run whose configuration differs from the ``saved`` one in what must not change."""
    for group in CALLING:
        if group in now and group in _FIXED:
            check_calls(group, saved.get(group), "resume", calls_of(now[group]))
    try:
        before = _fixed_settings(saved)
    except (AttributeError, KeyError, TypeError) as error:
        raise DataError(f"its configuration is damaged: {reason_of(error)}") from error
    after = _fixed_settings(now)
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        if old != new:
            given = "null" if old is None else quoted(old)
            raise ConfigError(
                f"resume: {quoted(key)} is {quoted(old)} in the checkpoint and {new} here: give {quoted(key)}={given},"
                " or start anew in another run_dir"
            )


def _fixed_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The values of ``_FIXED``, by dotted key."""
    schedule = resolved_schedule(config["schedule"], config["train"]["epochs"])
    flat = _flat({**config, "schedule": schedule})
    return {key: value for key, value in flat.items() if any(f"{key}.".startswith(f"{fixed}.") for fixed in _FIXED)}


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
