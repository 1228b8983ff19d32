"""What a training leaves beside its record: the epochs as they come, its predictions, and how to go on if it stops."""

import logging
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from fullgnn.config import Config
from fullgnn.distributed import StopRequest, World, from_rank0
from fullgnn.engine.checkpoints import progress_of
from fullgnn.engine.evaluate import predict
from fullgnn.engine.fit import EpochOutput, FitResult
from fullgnn.engine.job import Job
from fullgnn.engine.resume import how_to_resume
from fullgnn.engine.row_files import write_rows, writing_to
from fullgnn.engine.state import TrainState
from fullgnn.errors import TrainingStopped
from fullgnn.kernels.support.compile_time import compile_clock
from fullgnn.storage.record import RunFolder
from fullgnn.telemetry.epoch import EpochRecord
from fullgnn.telemetry.events import EventFiles
from fullgnn.telemetry.progress import Progress

log = logging.getLogger(__name__)

LEAST_COMPILING_S = 0.5
"""Compiling that takes less is not logged."""


@contextmanager
def epoch_outputs(world: World, cfg: Config, folder: RunFolder | None, first: int) -> Iterator[list[EpochOutput]]:
    """Where the record of each epoch goes, inside the ``with`` block. Every rank calls it.

    Args:
        folder: on rank 0.
        first: number of the first epoch.
    """
    events = from_rank0(lambda: EventFiles(Path(cfg.run_dir), first)) if cfg.train.tensorboard else None
    simulated = f"rank {world.rank} of {world.size}, simulated" if world.dry else ""
    progress = Progress(cfg.train.epochs, visible=world.rank == 0 or world.dry, first=first, simulated=simulated)
    compiling = CompilingRemark()
    try:
        yield [output for output in (compiling, progress, folder, events) if output is not None]
    finally:  # also where the training diverges
        compiling.close()
        progress.close()
        if events is not None:
            events.close()


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
    """Raise if the training ended before its last epoch.

    Raises:
        TrainingStopped: a signal has asked a rank to stop; the message says how to go on.
    """
    if result.stopped:
        line = how_to_resume(cfg, progress_of(state), result.unwritten)
        raise TrainingStopped(line, signal=request.signal or signal.SIGTERM)


def write_predictions(job: Job, result: FitResult, folder: RunFolder | None) -> None:
    """Write what the model of the best epoch predicts for all nodes, whose rows arrive part by part.

    Every rank calls it.

    Args:
        folder: on rank 0.
    """
    if result.best is None or job.preparation is None:
        return
    job.model.load_state_dict(result.best.model)
    output = predict(job.model, job.graph)
    rows = {"prediction": job.task.prediction(output), "logits": output}
    with ExitStack() as stack:

        def make_place() -> Path:
            assert folder is not None  # on rank 0
            with writing_to(folder.path):
                return Path(stack.enter_context(TemporaryDirectory(dir=folder.path, prefix=".predictions-")))

        place = from_rank0(make_place) or Path()
        write_rows(job.scheme, place, rows, job.preparation.facts.num_nodes)
        if folder is not None:
            folder.write_predictions({name: place / f"{name}.npy" for name in rows})
