"""The mistakes a user can make, one class per place to look for the cure.

Each message is one line: what is wrong, then what to change. ``fullgnn.train`` prints it without a
traceback on every rank and exits with status 1; any other exception is a defect of ours.
"""


class FullGNNError(Exception):
    """Base of every error that a user can mend."""


class ConfigError(FullGNNError):
    """A configuration key or value is wrong, or two of them disagree."""


class DataError(FullGNNError):
    """A dataset file or an in-memory graph is missing, damaged or inconsistent."""


class PartitionError(FullGNNError):
    """The graph cannot be cut or ordered as asked."""


class UnsupportedError(FullGNNError):
    """The request is sound, but this machine or this combination of options cannot do it."""
