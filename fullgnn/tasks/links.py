"""The base of the tasks that find links: the steps of an epoch, and rows of other ranks.

An epoch draws each training pair that has a negative once (``draws.py``), in ``num_steps`` batches. A step computes the
output of all nodes, brings the rows of the partners that this rank's draws name, and scores pairs by the inner product
of their rows:

    once an epoch   the distinct partners of each batch are found, by one exchange (``Directory.find_steps``)
    once a step     their rows arrive; in the backward pass their gradients travel back

A rank draws for the pairs of its own rows. Where replicas hold the same rows, each of them does all of this, and the
loss of one of them counts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fullgnn.errors import ConfigError, UnsupportedError
from fullgnn.graph.links import LinkFacts
from fullgnn.kernels.pairs.scores import pair_scores
from fullgnn.kernels.support.to_device import move
from fullgnn.room import module_on_use
from fullgnn.schemes.base import RowPairs, ShardedGraph
from fullgnn.schemes.directory import Directory, StepRequest
from fullgnn.tasks.draws import TRAINING, batch_sizes, draw, num_batches, stream_key
from fullgnn.tasks.task import TaskContract, is_larger

if TYPE_CHECKING:
    from fullgnn.tasks import _draws_cpu
else:
    _draws_cpu = module_on_use("fullgnn.tasks._draws_cpu")


@dataclass(frozen=True, eq=False)
class Step:
    """The draws of this rank in one step, on its device."""

    owner: Tensor  # (num_draws * (1 + num_negatives),) int64, LOCAL row; for each draw the partner, then the negatives
    partner: Tensor  # the same length, int64, row of the other node among those of ``request``, or LOCAL row
    request: StepRequest | None  # brings the partners' rows; None: this rank holds all rows
    num_draws: int  # GLOBAL


@dataclass(frozen=True, eq=False)
class DrawnPairs:
    """What this rank draws in an epoch, on the host, step by step; for each draw the partner, then the negatives."""

    owner: np.ndarray  # (num_pairs,) int64, LOCAL row
    ids: np.ndarray  # (num_pairs,) int64, ORIGINAL id of the other node
    starts: np.ndarray  # (num_steps + 1,) int64, where the pairs of each step begin


class LinkTask:
    """A ``Task`` that draws pairs of nodes. A class derives from it and defines ``losses`` and what ``Task`` asks for.

    Args:
        links: of the whole graph.
        channels: columns of the model's output, whose inner products are the scores.
        num_negatives: negatives of a draw.
        batch_size: draws of a step; None: one step an epoch, with all of them.
        seed: of the draws.

    Raises:
        ConfigError: a key is out of range.
    """

    contract = TaskContract(finds_links=True)
    metrics: tuple[str, ...]
    make_steps: Callable[[], list[Step]] | None = None
    """Makes the steps of every epoch, where there are no pairs to draw, as in a plan; None: they are drawn."""

    def __init__(self, links: LinkFacts, channels: int, num_negatives: int, batch_size: int | None, seed: int):
        for key, value in (("channels", channels), ("num_negatives", num_negatives), ("batch_size", batch_size)):
            if value is not None and value < 1:
                raise ConfigError(f"task.{key}={value} is too small: it must be at least 1")
        self.links, self.num_outputs, self.num_negatives = links, channels, num_negatives
        self.batch_size, self._seed = batch_size, seed
        self.num_steps = num_batches(links.num_train, batch_size)
        """Steps of an epoch."""

    def losses(self, scores: Tensor) -> Tensor:
        """The loss of each draw, (num_draws,).

        Args:
            scores: (num_draws, 1 + num_negatives), of the partner and of the negatives.
        """
        raise NotImplementedError

    def drawn(self, graph: ShardedGraph, epoch: int) -> DrawnPairs:
        """What this rank draws in ``epoch``, which counts from 1. It asks no other rank, and any thread may call it."""
        pairs = pairs_of(graph)
        key, width = stream_key(self._seed, TRAINING), 1 + self.num_negatives
        drawn = draw(
            pairs.train, pairs.first[0], pairs.known, self.links, key, epoch, self.num_negatives, self.batch_size
        )
        ids = np.concatenate([drawn.partner[:, None], drawn.negatives], axis=1).ravel()
        return DrawnPairs(np.repeat(drawn.row, width), ids, drawn.starts * width)

    def placed(self, graph: ShardedGraph, drawn: DrawnPairs) -> list[Step]:
        """The steps of an epoch with these draws. Every rank calls it."""
        owner, sizes = move(torch.from_numpy(drawn.owner), graph.block.source_id.device), np.diff(drawn.starts).tolist()
        places, requests = find_partners(graph, drawn.ids, drawn.starts)
        parts = zip(
            owner.split(sizes), places.split(sizes), requests, batch_sizes(self.links.num_train, self.batch_size)
        )
        return [Step(*part) for part in parts]

    def steps(self, graph: ShardedGraph, epoch: int) -> list[Step]:
        """The steps of ``epoch``, which counts from 1. Every rank calls it."""
        return self.placed(graph, self.drawn(graph, epoch))

    def step_loss(self, output: Tensor, graph: ShardedGraph, step: Step) -> Tensor:
        """This rank's part of the loss of ``step``: the sum over its draws, over the number of draws of all ranks.

        Args:
            output: (num_local_nodes, num_outputs), what the model computes for all rows of this rank.
        """
        partners = None if step.request is None else directory_of(graph).rows(output, step.request)
        scores = pair_scores(output, step.owner, partners, step.partner).view(-1, 1 + self.num_negatives)
        return (self.losses(scores).sum(dtype=torch.float64) / step.num_draws).to(output.dtype)

    def targets(self, labels: Tensor) -> Tensor:
        """See ``Task.targets``; labels are not used."""
        return labels

    def loss(self, output: Tensor, targets: Tensor) -> Tensor:
        """A task that finds links has ``step_loss`` instead."""
        raise UnsupportedError("a task that finds links has no loss of single nodes")

    def is_better(self, metric: float, best: float) -> bool:
        """See ``Task.is_better``: a larger score is better."""
        return is_larger(metric, best)

    def prediction(self, output: Tensor) -> Tensor:
        """(n, num_outputs), the output itself: the inner product of two rows is the score of their pair."""
        return output


def pairs_of(graph: ShardedGraph) -> RowPairs:
    """The pairs of ``graph``, which a task that finds links has requested."""
    assert graph.pairs is not None
    return graph.pairs


def directory_of(graph: ShardedGraph) -> Directory:
    """The directory of ``graph``. The first call is a collective.

    Raises:
        UnsupportedError: the scheme has none; the same on every rank.
    """
    if graph.block.directory is None:
        raise UnsupportedError("this scheme does not bring rows by their ids, which a task that finds links needs")
    return graph.block.directory()


def find_partners(graph: ShardedGraph, ids: np.ndarray, starts: np.ndarray) -> tuple[Tensor, list[StepRequest | None]]:
    """Find the rows of nodes that steps name. Every rank calls it, with as many steps.

    Args:
        ids: (num_ids,) int64, ORIGINAL ids of all steps.
        starts: (num_steps + 1,), where the ids of each step begin.

    Returns:
        for each id, on the device, its row among those that the request of its step brings; and the requests. If this
        rank holds all rows, there are none, and the rows are LOCAL ones.
    """
    directory, device = directory_of(graph), graph.block.source_id.device
    if len(starts) == 1:  # no step, on any rank: there are no such pairs
        return torch.empty(0, dtype=torch.int64, device=device), []
    if directory.is_alone:
        return move(directory.own_rows(torch.from_numpy(ids)), device), [None] * (len(starts) - 1)
    slot, distinct, sizes = _draws_cpu.slots(starts, ids)
    wanted = torch.from_numpy(distinct).to(device)
    arrival, requests = directory.find_steps(wanted, sizes.tolist())
    first = np.repeat(np.cumsum(sizes) - sizes, np.diff(starts))  # where the distinct ids of each id's step begin
    return arrival[torch.from_numpy(slot + first).to(device)], list(requests)
