"""Compare what a run asks of its blocks with what its scheme offers, before the graph is distributed."""

from fullgnn.errors import ConfigError
from fullgnn.schemes.base import Needs, Offers

CHOOSE_SCHEME = "choose scheme=1d or scheme=1.5d"
"""The cure in a message about a scheme that cannot do what is asked: both of these do all that a run can ask for."""


def check_offers(needs: Needs, offers: Offers, model: str, task: str, scheme: str) -> None:
    """Refuse a scheme that lacks something without which the model or the task cannot be trained.

    Args:
        model, task, scheme: the names of the choices, for the message.

    Raises:
        ConfigError: one line, the same on every rank.
    """
    lacks = {
        f"task={task} reads rows of other ranks by their ids": needs.pairs and not offers.pairs,
        f"model={model} reads the edges of the graph": bool(needs.edges) and not offers.edges,
        f"model={model} adds up what all ranks find for their rows": needs.joins_rows and not offers.joins_rows,
    }
    for what, is_lacking in lacks.items():
        if is_lacking:
            raise ConfigError(f"{what}, and scheme={scheme} multiplies only: {CHOOSE_SCHEME}")
