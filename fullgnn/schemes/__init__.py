"""Distributed algorithms: who holds which block, and how A @ H is computed from them."""

from typing import TYPE_CHECKING

from fullgnn.room import import_on_use

if TYPE_CHECKING:
    from fullgnn.schemes.base import BlockRequest, Offers, Scheme, ShardedGraph
    from fullgnn.schemes.block import Block, BlockProduct
    from fullgnn.schemes.one_and_half_d import OneAndHalfD, one_and_half_d, one_d

__all__ = [
    "Block",
    "BlockRequest",
    "BlockProduct",
    "Offers",
    "OneAndHalfD",
    "Scheme",
    "ShardedGraph",
    "one_and_half_d",
    "one_d",
]

import_on_use(__name__)
