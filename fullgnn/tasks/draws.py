"""The draws of an epoch: each training pair once, in batches, with negative partners.

Draw t belongs to training pair t of the whole graph, as ``graph/links.py`` numbers them. All that is random about it is
a function of (seed, epoch, t), from the counter-based generator of the dropout masks, so that every rank draws for the
pairs of its own rows, without communication, what any other number of ranks would draw:

- its negative k is the candidate number ``word mod count`` among the ``count`` candidates that the owner of the pair is
  not joined with, where ``word`` are the first 64 bits of Philox4x32-10(counter = (t mod 2^32, t div 2^32, k, epoch)).
  The candidate is found in the sorted list of the known ones, so that nothing is rejected and drawn again;
- its batch is ``perm(t) div batch_size``, where perm is a permutation of the pairs: a Feistel network on the smallest
  range 2^b that holds all pairs, applied again until the result is the number of a pair (cycle walking). So batches
  have exact sizes, and a rank knows the batches of its own pairs without looking at others.

A node that is joined with every candidate has no negatives. Its pairs are no training pairs; where it has held-out
pairs, these give no draw.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fullgnn.graph.links import LinkFacts, Lists
from fullgnn.kernels.dropout.philox import LOW, philox_4x32
from fullgnn.room import module_on_use

if TYPE_CHECKING:
    from fullgnn.tasks import _draws_cpu
else:
    _draws_cpu = module_on_use("fullgnn.tasks._draws_cpu")

TRAINING, EVALUATION = 0x6C696E6B, 0x72616E6B
"""Tags of the random streams: what training draws, and the negatives by which held-out pairs are ranked."""
NUM_ROUNDS = 8
"""Rounds of the Feistel network; each half is changed by every other one."""


@dataclass(frozen=True, eq=False)
class EpochDraws:
    """What one rank draws in one epoch, batch by batch."""

    starts: np.ndarray  # (num_batches + 1,) int64, where the draws of each batch begin
    row: np.ndarray  # (num_draws,) int64, LOCAL row of the owner
    partner: np.ndarray  # (num_draws,) int64, ORIGINAL id of the other node of the pair
    negatives: np.ndarray  # (num_draws, num_negatives) int64, ORIGINAL ids
    number: np.ndarray  # (num_draws,) int64, GLOBAL number t of the pair


def stream_key(seed: int, tag: int) -> tuple[int, int]:
    """The Philox key of the random stream ``tag`` of a run with ``seed``."""
    words = philox_4x32(np.array([tag, 0, 0, LOW]), np.array([seed & LOW, seed >> 32 & LOW]))
    return int(words[0]), int(words[1])


def num_batches(num_pairs: int, batch_size: int | None) -> int:
    """How many batches an epoch has; the last one may be smaller. None: one."""
    return 1 if batch_size is None else -(-num_pairs // batch_size)


def batch_sizes(num_pairs: int, batch_size: int | None) -> list[int]:
    """The GLOBAL number of pairs of each batch."""
    size = num_pairs if batch_size is None else batch_size
    return [min(size, num_pairs - first) for first in range(0, num_pairs, size)]


def draw(
    pairs: Lists,
    first: np.ndarray,
    known: Lists,
    facts: LinkFacts,
    key: tuple[int, int],
    epoch: int,
    num_negatives: int,
    batch_size: int | None = None,
    num_pairs: int | None = None,
) -> EpochDraws:
    """Draw for the ``pairs`` of this rank's rows.

    Args:
        pairs: by local row, ORIGINAL ids of the partners.
        first: (num_local_nodes,) int64, GLOBAL number of the first pair of each row.
        known: by local row, the candidates that are no negatives.
        num_pairs: how many pairs all ranks have together; None: those of training.
    """
    epoch &= LOW
    total = facts.num_train if num_pairs is None else num_pairs
    size = batch_size or max(1, total)
    keys = round_keys(key, epoch)
    return EpochDraws(
        *_draws_cpu.draw_cpu(pairs, first, known, facts.candidates, key, epoch, num_negatives, size, total, keys)
    )


def round_keys(key: tuple[int, int], epoch: int) -> np.ndarray:
    """(NUM_ROUNDS,) uint64 keys of the Feistel network."""
    counter = np.zeros((NUM_ROUNDS, 4), np.uint32)
    counter[:, 0], counter[:, 2], counter[:, 3] = np.arange(NUM_ROUNDS), LOW, epoch & LOW  # no negative has number LOW
    words = philox_4x32(counter, np.array(key)).astype(np.uint64)
    return words[:, 0] | words[:, 1] << np.uint64(32)
