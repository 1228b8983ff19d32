"""What a training leaves beside its record: the epochs as they come, its predictions, and how to go on if it stops."""

import logging
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from fullgnn.config import Config
from fullgnn.distributed import StopRequest, World, from_rank0
from fullgnn.engine.checkpoints import progress_of
from fullgnn.engine.evaluate import predict
from fullgnn.engine.fit import EpochOutput, FitResult
from fullgnn.engine.resume import how_to_resume
from fullgnn.engine.run import Run
from fullgnn.engine.state import TrainState
from fullgnn.errors import TrainingStopped
from fullgnn.kernels.support.compile_time import compile_clock
from fullgnn.storage.record import RunFolder, unwritable
from fullgnn.storage.temporary import writing_to
from fullgnn.telemetry.log import Progress
from fullgnn.telemetry.meter import EpochRecord

log = logging.getLogger(__name__)

LEAST_COMPILING_S = 0.5
"""Compiling that takes less is not logged."""


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
    files = _Files(Path(cfg.run_dir), [one for one in (folder, events) if one is not None], request)
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
    if result.stopped:
        line = how_to_resume(cfg, progress_of(state), result.unwritten)
        raise TrainingStopped(line, signal=request.signal or signal.SIGTERM)


def named_table(run: Run, choice: str, class_names: tuple[str, ...] | None = None) -> str | None:
    """The name of the file with the named predictions of ``run``; None: there is none. Equal on every rank.

    Args:
        choice: ``train.prediction_table``.
        class_names: those that the model was trained with; None: those of the graph.
    """
    from fullgnn.engine.prediction_table import table_name

    nodes = run.facts.nodes
    class_names = class_names or nodes.labels.class_names
    return table_name(choice, bool(nodes.node_names) or class_names is not None)


def write_named(path: Path, run: Run, files: Sequence[Path], class_names: tuple[str, ...] | None = None) -> None:
    """Write the table of the predictions in the ``.npy`` files of predictions and outputs, on rank 0.

    Args:
        class_names: those that the model was trained with; None: those of the graph.

    Raises:
        ConfigError: it cannot be written.
    """
    from fullgnn.engine.prediction_table import write_table

    names = class_names or run.facts.nodes.labels.class_names
    prediction, outputs = (np.load(file, mmap_mode="r", allow_pickle=False) for file in files)
    write_table(path, run.names, names, prediction, outputs)


def write_predictions(run: Run, result: FitResult, folder: RunFolder | None) -> None:
    """Write what the model of the best epoch predicts for all nodes, whose rows arrive part by part.

    Every rank calls it.

    Args:
        folder: on rank 0.
    """
    if result.best is None:
        return
    from fullgnn.engine.row_files import write_rows

    run.model.load_state_dict(result.best.model)
    output = predict(run)
    rows = {"prediction": run.task.prediction(output), "logits": output}
    with ExitStack() as stack:

        def make_place() -> Path:
            assert folder is not None  # on rank 0
            with writing_to("run_dir", folder.path):
                return Path(stack.enter_context(TemporaryDirectory(dir=folder.path, prefix=".predictions-")))

        place = from_rank0(make_place) or Path()
        write_rows(run.scheme, place, rows, run.facts.num_nodes)
        files = {name: place / f"{name}.npy" for name in rows}
        write_to(folder, lambda folder: folder.write_predictions(files))
        table = named_table(run, run.cfg.train.prediction_table)
        if table is not None:
            write_to(folder, lambda folder: write_named(folder.path / table, run, [*files.values()]))
