"""A model as a user may write it, for a YAML file of the user's own."""

from fullgnn.models import GCN


class Own(GCN):
    """A GCN by another name."""
