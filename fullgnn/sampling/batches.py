"""The batches of an epoch, drawn from items such as training nodes.

The order of the items in an epoch is a function of (seed, epoch): they are sorted by a random word each, from the
counter-based generator of the dropout masks. A batch is cut from that order whatever the number of ranks is, and each
rank takes some of its items. So the batches of p ranks are those of one.
"""

import numpy as np

from fullgnn.kernels.dropout.philox import LOW, philox_4x32
from fullgnn.tasks.draws import stream_key

ORDER = 0x6F726472
"""Tag of the random stream that orders the items."""
CHUNK = 1 << 20


def epoch_order(items: np.ndarray, seed: int, epoch: int) -> np.ndarray:
    """``items`` in the order of ``epoch``.

    Args:
        items: (n,) int64 ids, ascending and distinct.
    """
    key, words = np.array(stream_key(seed, ORDER)), np.empty(len(items), np.uint64)
    for first in range(0, len(items), CHUNK):
        ids = items[first : first + CHUNK].astype(np.uint64)
        zero = np.zeros_like(ids)
        counter = np.stack([ids & np.uint64(LOW), ids >> np.uint64(32), zero, zero + np.uint64(epoch & LOW)], axis=-1)
        drawn = philox_4x32(counter, key).astype(np.uint64)
        words[first : first + CHUNK] = drawn[:, 0] << np.uint64(32) | drawn[:, 1]
    return items[np.argsort(words, kind="stable")]


def num_batches(num_items: int, batch_size: int) -> int:
    """How many batches an epoch has; the last one may be smaller."""
    return -(-num_items // batch_size)


def batch_of(order: np.ndarray, batch_size: int, number: int) -> np.ndarray:
    """The items of batch ``number``, from 0, in their order."""
    return order[number * batch_size : (number + 1) * batch_size]
