"""The configuration: its schema, how it is composed and checked, and the shell that every command shares."""

from fullgnn.config.schema import (
    Config,
    ReorderConfig,
    RuntimeConfig,
    TrainConfig,
    WorkConfig,
    build,
    conf_dir,
    target_of,
)

__all__ = [
    "Config",
    "ReorderConfig",
    "RuntimeConfig",
    "TrainConfig",
    "WorkConfig",
    "build",
    "conf_dir",
    "target_of",
]
