"""The targets of accuracy: each is a row of ``CASES``, a function that fills the table."""

from collections.abc import Callable

from fullgnn.config.keys import check_choices
from fullgnn.reproduce.result import Result
from fullgnn.reproduce.sparsification import curves, losses, similarity
from fullgnn.reproduce.sparsification.accuracy_config import Config, check

CASES: dict[str, Callable[[Config], Result]] = {
    "losses": losses.run,
    "similarity": similarity.run,
    "curves": curves.run,
}
"""What these targets measure, by their key ``case``."""


def run(cfg: Config) -> Result:
    """Run the case of ``cfg``.

    Raises:
        ConfigError: there is no such case, or a number is out of range.
    """
    check_choices("case", [cfg.case], CASES)
    check(cfg)
    return CASES[cfg.case](cfg)
