"""Prepare the graph and train a model on it."""

from fullgnn.engine.cuda_graph import replay_for
from fullgnn.engine.deterministic import check_deterministic
from fullgnn.engine.evaluate import evaluate, predict
from fullgnn.engine.fit import FitResult, fit
from fullgnn.engine.job import (
    Job,
    build_model,
    distribute,
    make_input,
    make_scheme,
    prepare_on_rank0,
    set_up,
    with_input,
)
from fullgnn.engine.memory import peak_process_bytes
from fullgnn.engine.optimizers import check_optimizer
from fullgnn.engine.prepare import Preparation, Prepared, check_preparation, prepare
from fullgnn.engine.train_step import TrainStep

__all__ = [
    "FitResult",
    "Job",
    "Preparation",
    "Prepared",
    "TrainStep",
    "build_model",
    "check_deterministic",
    "check_optimizer",
    "check_preparation",
    "distribute",
    "evaluate",
    "fit",
    "make_input",
    "make_scheme",
    "peak_process_bytes",
    "predict",
    "prepare",
    "prepare_on_rank0",
    "replay_for",
    "set_up",
    "with_input",
]
