"""The configuration: its schema, how it is composed from YAML and overrides, and how it is checked."""

from fullgnn.config.schema import (
    Config,
    LoaderConfig,
    MinibatchConfig,
    MinibatchTrainConfig,
    OptimizationConfig,
    ReorderConfig,
    RuntimeConfig,
    TrainConfig,
    build,
    conf_dir,
    given_targets,
    is_encoded,
    target_of,
)

__all__ = [
    "Config",
    "LoaderConfig",
    "MinibatchConfig",
    "MinibatchTrainConfig",
    "OptimizationConfig",
    "ReorderConfig",
    "RuntimeConfig",
    "TrainConfig",
    "build",
    "conf_dir",
    "given_targets",
    "is_encoded",
    "target_of",
]
