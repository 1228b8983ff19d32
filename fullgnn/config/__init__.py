"""The configuration: its schema, how it is composed from YAML and overrides, and how it is checked."""

from fullgnn.config.schema import (
    Config,
    OptimizationConfig,
    ReorderConfig,
    RuntimeConfig,
    TrainConfig,
    build,
    conf_dir,
    target_of,
)

__all__ = [
    "Config",
    "ReorderConfig",
    "RuntimeConfig",
    "TrainConfig",
    "OptimizationConfig",
    "build",
    "conf_dir",
    "target_of",
]
