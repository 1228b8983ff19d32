"""Helpers that test_exactness.py shares with other test modules."""

KINDS = ["symmetric", "directed", "weighted", "isolated", "tiny", "corner"]
CASE = ["model.dropout=0.4", "model.num_layers=3", "model.hidden_channels=7", "seed=3", "runtime.dtype=float64"]
SHORT = ["optimizer.lr=0.05", "train.epochs=20", "train.eval_every=0"]


def some_kinds(number: int, every_case: bool) -> list[str]:
    """Half of ``KINDS``, the other half where ``number`` is odd, or all of them for ``every_case``."""
    return KINDS if every_case else KINDS[number % 2 :: 2]
