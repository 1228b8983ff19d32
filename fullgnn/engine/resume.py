"""Which run a run goes on with, and what it leaves in the run folder. Only rank 0 looks at the files.

resume=never   a new run, in a folder without one
resume=auto    the run in ``run_dir``: from its latest checkpoint, or anew if it has none
resume=PATH    another run, or a checkpoint of one; its epochs are copied to ``run_dir``

The graph of ``train_graph`` stays beside its run, so that the run can be predicted with, and gone on with. Until the
set-up has ended it is a temporary file, since a run that fails before its training leaves nothing; from then on it is
``graph.npz`` in the run folder, which ``config.yaml`` and the checkpoints name.
"""

import logging
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from fullgnn.config import Config
from fullgnn.config.compose import resolved_schedule
from fullgnn.config.overrides import quote
from fullgnn.config.trust import CALLING, calls_of, check_calls, plain_config
from fullgnn.distributed import broadcast_object, from_rank0
from fullgnn.distributed.store import attempt
from fullgnn.engine.checkpoints import fitting
from fullgnn.engine.state import TrainState
from fullgnn.errors import ConfigError, DataError, quoted, reason_of
from fullgnn.graph.datasets import CONTENTS, UNKNOWN, contents_of
from fullgnn.storage.checkpoint import STATE, check, find, read
from fullgnn.storage.folder import CHECKPOINTS, GRAPH, check_folder, checkpoints, has_own_graph, remove_after
from fullgnn.storage.record import RunFolder, RunRecord, read_record
from fullgnn.storage.temporary import replacing, writing_to
from fullgnn.storage.text import parse_yaml, read_text

log = logging.getLogger(__name__)

AUTO, NEVER = "auto", "never"

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
    before, now = ({**one, "resume": AUTO, "run_dir": ""} for one in both)  # type: ignore[dict-item]
    if before != now:
        return None
    log.info("%s holds this run already, which has finished", cfg.run_dir)
    return read_record(folder)


def finished_before(cfg: Config) -> RunRecord | None:
    """``finished_run`` on every rank; only rank 0 looks. Under torchrun, nothing else has looked before."""
    if cfg.resume != AUTO:
        return None
    (found,) = broadcast_object(from_rank0(lambda: [finished_run(cfg)]))
    return found


def finished_record(cfg: Config, state: TrainState) -> RunRecord | None:
    """The record in the run folder, if that run has finished and nothing is left to train; None otherwise."""
    folder = Path(cfg.run_dir)
    if not state.is_finished(cfg.train) or not (folder / "record.json").is_file():
        return None
    log.info("%s holds a finished run of %d epochs: nothing is left to train", cfg.run_dir, state.epoch)
    return read_record(folder)


def how_to_resume(cfg: Config, progress: str, unwritten: str) -> str:
    """The last line of a run that was asked to stop.

    Args:
        progress: how far the training has come, see ``progress_of``.
        unwritten: why there is no checkpoint of it; empty if there is one.
    """
    if cfg.runtime.dry_run:
        return f"stopped at {progress} of a dry run"
    if unwritten:
        return f"stopped at {progress}, without a checkpoint of it: {unwritten}"
    return f"stopped at {progress}; resume with: resume=auto run_dir={quote(cfg.run_dir)}"


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
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def with_kept_graph(cfg: Config) -> Config:
    """``cfg`` as the files of its run have it: a graph of ``train_graph`` lies in the run folder. Other datasets stay
    where they are."""
    digest = contents_of(cfg.dataset.get(CONTENTS), cfg.dataset.get("path"))
    if digest is None:
        return cfg
    path = str(Path(cfg.run_dir).absolute() / GRAPH)
    contents = UNKNOWN if digest == UNKNOWN else f"{digest} {path}"
    return replace(cfg, dataset={**cfg.dataset, "path": path, CONTENTS: contents})


def check_place(cfg: Config, checkpoint: Path | None) -> None:
    """Refuse to replace a ``graph.npz`` of the user's. Only rank 0 calls it, before anything is loaded.

    Args:
        checkpoint: from which the run goes on, whose graph must be the same.

    Raises:
        ConfigError: there is such a file in the run folder.
    """
    folder = Path(cfg.run_dir).absolute()
    goes_on = checkpoint is not None and checkpoint.parent.parent == folder
    if with_kept_graph(cfg) != cfg and (folder / GRAPH).exists() and not goes_on and not has_own_graph(folder):
        raise ConfigError(
            f"run_dir={cfg.run_dir} holds a {GRAPH} that train_graph has not written, and the graph of this run would"
            " replace it: move it, or choose another run_dir"
        )


def keep_graph(loaded: Config, kept: Config) -> None:
    """Move the file of the graph from where a run has ``loaded`` it to where it is ``kept``. Only rank 0 calls it.

    Raises:
        ConfigError: the run folder cannot be written, or has too little room.
    """
    source, target = loaded.dataset.get("path"), kept.dataset.get("path")
    if source == target:
        return
    with writing_to("run_dir", kept.run_dir), replacing(Path(target)) as temporary:
        shutil.move(source, temporary)
