"""Full-batch training: one gradient step per epoch, whose mathematics does not depend on the number of ranks."""

import copy
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from fullgnn.config import TrainConfig
from fullgnn.engine.evaluate import evaluate
from fullgnn.engine.memory import TensorPeak
from fullgnn.engine.train_step import Launched, TrainStep
from fullgnn.kernels.support.process import keep_freed_memory
from fullgnn.kernels.support.trials import free_kept_formats
from fullgnn.telemetry.epoch import Accuracies, EpochRecord

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FitResult:
    epochs: list[EpochRecord]
    best: EpochRecord  # best validation accuracy, earliest on ties; the last evaluation without a validation split
    best_state: dict[str, Tensor]  # the model's parameters at ``best``
    peak_tensor_bytes: int
    cuda_graph: str  # see RunRecord


def fit(
    step: TrainStep, train: TrainConfig, on_epoch: Callable[[EpochRecord], None] = lambda record: None
) -> FitResult:
    """Train the model of ``step`` in place, then close ``step``. Every rank calls it with the same model.

    Every decision (best epoch, early stop) uses numbers that are equal on all ranks. On a GPU, the result of an epoch
    without evaluation is read, and ``on_epoch`` called, only after the next epoch was launched, so that the GPU does
    not wait for the host.
    """
    keep_freed_memory()
    model, graph = step.model, step.graph
    peak = TensorPeak(graph.labels.device)
    records: list[EpochRecord] = []
    best: EpochRecord | None = None
    best_state: dict[str, Tensor] = {}
    stale = 0  # evaluations since the best one
    late: Launched | None = None  # an epoch that was launched and not yet read

    def watched() -> AbstractContextManager[None]:
        return peak.watch(*graph.tensors(), *step.tensors())

    def read(launched: Launched, accuracy: Accuracies | None) -> EpochRecord:
        record = EpochRecord(launched.epoch, launched.loss.read(), launched.cost.read(), accuracy, launched.replayed)
        records.append(record)
        return record

    try:
        for epoch in range(1, train.epochs + 1):
            step.meter.lap()
            with watched() if epoch == 1 else nullcontext():
                launched = step(epoch)
            peak.hold(step.idle_bytes)
            if late is not None:
                on_epoch(read(late, None))
                late = None
            if epoch < train.epochs and not (train.eval_every and epoch % train.eval_every == 0):
                if defers_reads(graph.labels.device):
                    late = launched
                else:
                    on_epoch(read(launched, None))
                continue
            with watched() if best is None else nullcontext():
                accuracy = evaluate(model, graph, step.scheme)
            if best is None:
                free_kept_formats()
            record = read(launched, accuracy)
            if best is None or _is_better(accuracy, best.accuracy):
                best, stale = record, 0
                best_state = copy.deepcopy(model.state_dict())
            else:
                stale += 1
            on_epoch(record)
            if train.patience and stale >= train.patience:
                break
        assert best is not None  # the last epoch is always evaluated
        if peak.trial_bytes > peak.bytes:
            log.info("peak memory: %.0f MB in autotuning, %.0f MB without", peak.trial_bytes / 1e6, peak.bytes / 1e6)
        return FitResult(records, best, best_state, peak.bytes, step.outcome)
    finally:
        step.close()


def defers_reads(device: torch.device) -> bool:
    """Whether the host launches the next epoch before it reads the results of the current one."""
    return device.type == "cuda"


def _is_better(accuracy: Accuracies, best: Accuracies | None) -> bool:
    """Whether a later evaluation replaces the best: strictly better on validation, or always without validation."""
    return best is None or best.val is None or accuracy.val is None or accuracy.val > best.val
