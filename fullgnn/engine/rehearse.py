"""Compile the kernels of a training step on several threads before the first step, without a trace in the training."""

from collections.abc import Callable

import torch

from fullgnn.engine.cuda_graph import StateSnapshot
from fullgnn.kernels.support.rehearsal import rehearsal
from fullgnn.kernels.support.trials import trial
from fullgnn.telemetry.meter import Meter


def rehearse(step: Callable[[], None], save: Callable[[], StateSnapshot], meter: Meter) -> None:
    """Compile the kernels of ``step`` on all threads of this rank. Every rank calls it, since a step has collectives.

    What the step changes is restored, ``meter`` counts nothing of it, and its memory is that of a trial.

    Args:
        save: takes a snapshot of all that ``step`` changes.
    """
    with trial():
        saved = save()
        try:
            with meter.untimed(), rehearsal(torch.get_num_threads()):
                step()
        finally:
            saved.restore()
            del saved  # which would outlive the trial
