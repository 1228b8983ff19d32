"""What a task that finds links draws in an epoch, and which rows of its partners travel, as a plan counts them.

Which nodes a step names is random, so the rows that travel are expected numbers. Let c be how many training pairs join
owners on one rank with the partner v, f the share of all pairs that a step draws, and N the negatives that the owners
of this rank draw in the step, each any of the candidates. The rank then reads the row of v with probability

    1 - (1 - f)^c (1 - 1/candidates)^N

That a negative is none of the partners of its owner is left out: it is seldom one.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from fullgnn.graph.links import LinkFacts
from fullgnn.prepare.prepared import PreparedGraph
from fullgnn.schemes.product_layout import RowDistribution
from fullgnn.tasks import LinkTask
from fullgnn.tasks.draws import batch_sizes


@dataclass(frozen=True, eq=False)
class PlannedLinks:
    """The draws of an epoch. A *holder* is a slice of a block row: a rank, or the replicas that hold the same rows."""

    facts: LinkFacts
    num_steps: int
    width: int  # pairs of nodes that are scored for a draw: 1 and the negatives
    replication: int
    draws: np.ndarray  # (b, m) int64, of each holder in an epoch
    rows: np.ndarray  # (b * m, b * m) float64, rows that a holder reads of another in all steps, its own included

    @property
    def num_ranks(self) -> int:
        return len(self.draws) * self.replication

    def of_ranks(self, by_holder: np.ndarray) -> np.ndarray:
        """(b, r), what ``by_holder`` (b * m,) says of the rows of each rank."""
        found: np.ndarray = by_holder.reshape(self.draws.shape)
        return found if found.shape[1] > 1 else np.repeat(found, self.replication, axis=1)

    @property
    def rows_fetched(self) -> np.ndarray:
        """(b, r) float64, rows of other ranks that each rank reads in an epoch."""
        return self.of_ranks(self.rows.sum(axis=1) - np.diag(self.rows))

    @property
    def rows_served(self) -> np.ndarray:
        """(b, r) float64, rows of each rank that others read in an epoch, and whose gradients come back."""
        return self.of_ranks(self.rows.sum(axis=0) - np.diag(self.rows))

    def bytes_received(self, row_bytes: int) -> dict[str, np.ndarray]:
        """(b, r) int64 bytes, by collective, that each rank receives in an epoch for the rows of its partners and
        their gradients of ``row_bytes``, and for finding where they are; see ``schemes/directory.py``."""
        size = self.num_ranks
        if size == 1:
            return {}
        wanted = self.of_ranks(self.rows.sum(axis=1))
        kept = self._kept_share().reshape(wanted.shape)
        asked = kept * (wanted.sum() - wanted) * 8
        answers = (1 - kept) * wanted * 16
        held = self.rows_served * 8
        counts = 16 * self.num_steps * (size - 1)
        found = {
            "exchange": self.rows_fetched * row_bytes,
            "push": self.rows_served * row_bytes,
            "ids": asked + answers + held + counts,
            "all_reduce": np.full(wanted.shape, 2 * (size - 1) * 8 // size),  # the largest request
        }
        return {name: np.rint(counts).astype(np.int64) for name, counts in found.items()}

    def scaled(self, factor: float) -> "PlannedLinks":
        """The same with ``factor`` times the draws."""
        return replace(self, draws=np.rint(self.draws * factor).astype(np.int64), rows=self.rows * factor)

    def _kept_share(self) -> np.ndarray:
        """(p,) the share of the candidates whose places each rank keeps."""
        candidates, each = self.facts.candidates, -(-self.facts.num_nodes // self.num_ranks)
        bounds = np.clip(np.arange(self.num_ranks + 1) * each, candidates.start, candidates.stop)
        return np.diff(bounds) / len(candidates)


def counted_links(prepared: PreparedGraph, rows: RowDistribution, task: LinkTask, replication: int) -> PlannedLinks:
    """The draws of ``task`` from the pairs of a graph that was prepared with them."""
    facts = prepared.facts.nodes.links
    assert facts is not None
    num_nodes, num_holders = rows.total, rows.bounds[:, 1:].size
    holder = np.empty(num_nodes, np.int64)  # by original id
    node_id = np.concatenate([part.node_id for part in prepared.parts()])
    holder[node_id] = np.repeat(np.arange(num_holders), np.diff(rows.bounds, axis=1).ravel())
    owners, partners = [], []
    for part in prepared.parts():
        train = part.pairs["train"]
        owners.append(np.repeat(holder[part.node_id], np.diff(train.indptr)))
        partners.append(train.ids)
    owner = np.concatenate(owners)
    keys = np.sort(owner * num_nodes + np.concatenate(partners))
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    counts, (reader, partner) = np.diff(first, append=len(keys)), np.divmod(keys[first], num_nodes)
    cell = reader * num_holders + holder[partner]

    def rows_of_pairs(share: float) -> np.ndarray:
        """Rows of partners of training pairs, expected in a step that draws this share of them."""
        drawn = np.bincount(cell, 1 - (1 - share) ** counts, num_holders**2)
        return drawn.reshape(num_holders, num_holders)

    draws = np.bincount(owner, minlength=num_holders)
    candidates = facts.candidates
    held = np.bincount(holder[candidates.start : candidates.stop], minlength=num_holders)
    return _planned(facts, task, replication, draws, held, rows_of_pairs, rows.num_slices)


def estimated_links(facts: LinkFacts, rows: RowDistribution, task: LinkTask, replication: int) -> PlannedLinks:
    """The draws of ``task`` from random pairs, whose nodes are spread evenly over the rows."""
    share_of = np.diff(rows.bounds, axis=1).ravel() / max(1, rows.total)
    num_candidates = len(facts.candidates)
    draws, held = facts.num_train * share_of, num_candidates * share_of

    def rows_of_pairs(share: float) -> np.ndarray:
        """See ``counted_links``."""
        return -np.expm1(-share * draws / num_candidates)[:, None] * held

    return _planned(facts, task, replication, draws, held, rows_of_pairs, rows.num_slices)


def _planned(
    facts: LinkFacts,
    task: LinkTask,
    replication: int,
    draws: np.ndarray,
    held: np.ndarray,
    rows_of_pairs: Callable[[float], np.ndarray],
    num_slices: int,
) -> PlannedLinks:
    """Join the rows of pairs with those of negatives.

    Args:
        draws: (b * m,) of an epoch, by holder.
        held: (b * m,) candidates among the rows of each holder.
        rows_of_pairs: (b * m, b * m) for a share of the pairs.
    """
    rows, num_candidates = np.zeros((len(draws), len(draws))), max(1, len(facts.candidates))
    for size, times in zip(*np.unique(batch_sizes(facts.num_train, task.batch_size), return_counts=True)):
        share = size / max(1, facts.num_train)
        unnamed = np.exp(-draws * share * task.num_negatives / num_candidates)[:, None]  # by any negative
        rows += times * (held * (1 - unnamed) + unnamed * rows_of_pairs(share))
    by_part = np.rint(draws).astype(np.int64).reshape(-1, num_slices)
    return PlannedLinks(facts, task.num_steps, 1 + task.num_negatives, replication, by_part, rows)
