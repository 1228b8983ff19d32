"""What the nodes of a graph are called, in words."""

from fullgnn.errors import quoted
from fullgnn.graph.node_names import NodeNames, Texts

_SHOWN = 3
"""Names that are given as examples."""


def named(names: NodeNames | None) -> str | None:
    """A phrase such as ``integers from 35 to 1155073, in no order and with gaps: 31336, 1061127, 1106406, ...``.

    Args:
        names: (num_nodes,), of a ``Graph``; None: nodes are called by their numbers, and so is what is returned.
    """
    if names is None:
        return None
    examples = ", ".join(quoted(one) if isinstance(one, str) else str(one) for one in names[:_SHOWN].tolist())
    shown = f"{examples}{', ...' if len(names) > _SHOWN else ''}"
    if isinstance(names, Texts):
        return f"texts: {shown}"
    low, high = int(names.min()), int(names.max())
    order = "in ascending order" if bool((names[1:] > names[:-1]).all()) else "in no order"
    gaps = "with gaps" if high - low >= len(names) else "without gaps"
    return f"integers from {low} to {high}, {order} and {gaps}: {shown}"
