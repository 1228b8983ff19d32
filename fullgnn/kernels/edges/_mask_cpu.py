"""The dropout of ``mask.py`` inside compiled loops. Importing this module imports numba."""

import numba
import numpy as np

from fullgnn.kernels.dropout._philox_cpu import LOW, philox
from fullgnn.kernels.edges.mask import EdgeMask

NO_IDS = np.empty(0, np.int64)

MaskArguments = tuple[np.ndarray, np.ndarray, np.uint32, float, np.uint64, np.uint64, np.uint64, np.uint64]
"""The arguments of a dropout in a loop: target_id, source_id, threshold, scale, layer, epoch, key_0 and key_1."""


def mask_arguments(mask: EdgeMask | None) -> MaskArguments:
    """The arguments of a dropout; None: the arguments for no dropout."""
    if mask is None:
        zero = np.uint64(0)
        return NO_IDS, NO_IDS, np.uint32(0), 1.0, zero, zero, zero, zero
    words = (mask.layer, int(mask.epoch) & int(LOW), *mask.key)
    ids = (mask.target_id.contiguous().numpy(), mask.source_id.contiguous().numpy())
    return *ids, np.uint32(mask.threshold), mask.scale, *(np.uint64(word) for word in words)  # type: ignore[return-value]


@numba.njit(nogil=True, cache=True)
def drop_weights(weights, count, num_heads, target, source, threshold, scale, layer, epoch, key_0, key_1):
    """Multiply (count, num_heads) ``weights`` of edges by their factors of the dropout.

    Args:
        target, source: (count,) uint64 GLOBAL original ids of the edges' ends.
    """
    eight, sixteen, high = np.uint64(8), np.uint64(16), np.uint64(32)
    num_groups = (num_heads + 3) // 4
    word = np.empty(4 * count, np.uint32)
    of_layer = layer << np.uint64(24)
    factor, zero = weights.dtype.type(scale), weights.dtype.type(0)
    for group in range(num_groups):
        constant = of_layer + (np.uint64(group) << sixteen)
        for k in range(count):
            packed = (target[k] >> high) + (source[k] >> high << eight) + constant
            words = philox(target[k] & LOW, source[k] & LOW, packed, epoch, key_0, key_1)
            word[4 * k] = words[0]
            word[4 * k + 1] = words[1]
            word[4 * k + 2] = words[2]
            word[4 * k + 3] = words[3]
        for k in range(count):
            for head in range(4 * group, min(4 * group + 4, num_heads)):
                weight = weights[k * num_heads + head]
                weights[k * num_heads + head] = weight * factor if word[4 * k + head - 4 * group] >= threshold else zero
