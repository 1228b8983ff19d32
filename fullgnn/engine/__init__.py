"""Preparing the graph and training on it."""

from fullgnn.engine.evaluate import Accuracies, evaluate, predict
from fullgnn.engine.fit import EpochRecord, FitResult, fit
from fullgnn.engine.memory import peak_process_bytes
from fullgnn.engine.prepare import Preparation, prepare

__all__ = [
    "Accuracies",
    "EpochRecord",
    "FitResult",
    "Preparation",
    "evaluate",
    "fit",
    "peak_process_bytes",
    "predict",
    "prepare",
]
