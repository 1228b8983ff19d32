"""Which keys of a configuration make replicates: runs of one setting that differ in what was drawn for them."""

SEED = "seed"
SPLIT_NUMBERS = ("split", "split_id", "split_index", "split_number", "fold")
"""Last parts of keys that number the splits of a dataset."""


def is_draw(key: str, value: str) -> bool:
    """Whether a dotted ``key`` draws one of many equal runs: a seed, also that of a dataset, of a split or of held-out
    links, or the number of a split. The name of a split is a setting."""
    last = key.rpartition(".")[2].lstrip("+")
    return last == SEED or last.endswith(f"_{SEED}") or (last in SPLIT_NUMBERS and value.lstrip("-").isdigit())


def is_override_of_draw(word: str) -> bool:
    """Whether a word, such as ``dataset.seed=3``, is an override of such a key."""
    key, sign, value = word.partition("=")
    return bool(sign) and is_draw(key, value)
