"""Prepare the graph and train a model on it."""

from typing import TYPE_CHECKING

from fullgnn.room import import_on_use

if TYPE_CHECKING:
    from fullgnn.engine.checks import check_deterministic, check_preparation, check_training_data, replay_for
    from fullgnn.engine.fit import FitResult, Steps, fit
    from fullgnn.engine.optimizers import check_optimizer
    from fullgnn.engine.passes import evaluate, predict, train_step
    from fullgnn.engine.run import Run, build_model, distribute, learn, make_scheme, prepare_input, set_up
    from fullgnn.engine.state import TrainState
    from fullgnn.engine.step_runner import StepRunner
    from fullgnn.telemetry.machine import peak_process_bytes

__all__ = [
    "FitResult",
    "Run",
    "StepRunner",
    "Steps",
    "TrainState",
    "build_model",
    "check_deterministic",
    "check_optimizer",
    "check_preparation",
    "check_training_data",
    "distribute",
    "evaluate",
    "fit",
    "learn",
    "make_scheme",
    "peak_process_bytes",
    "predict",
    "prepare_input",
    "replay_for",
    "set_up",
    "train_step",
]

import_on_use(__name__)
