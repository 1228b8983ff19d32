"""What draws, losses and metrics of links must be, on dense matrices and in plain loops, without the package."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np
import torch
from torch import Tensor

from tests.oracle import normalize, philox_words

LOW = 0xFFFFFFFF
TRAINING, EVALUATION = 0x6C696E6B, 0x72616E6B


@dataclass(frozen=True)
class Links:
    """A tiny graph with links to find; ``adj[i, j]`` != 0 means that i reads from j. Of each pair, the lower id is the
    first one."""

    adj: np.ndarray
    num_users: int | None
    train: list[tuple[int, int]]
    val: list[tuple[int, int]]
    test: list[tuple[int, int]]

    @property
    def size(self) -> int:
        return len(self.adj)

    def joined(self, node: int, pairs: Sequence[tuple[int, int]]) -> set[int]:
        """The nodes that ``node`` may not draw because of these pairs."""
        partners = {v for u, v in pairs if u == node}
        return partners if self.num_users is not None else partners | {node} | {u for u, v in pairs if v == node}

    def candidates(self, node: int, pairs: Sequence[tuple[int, int]]) -> list[int]:
        joined = self.joined(node, pairs)
        return [v for v in range(self.num_users or 0, self.size) if v not in joined]

    @functools.cached_property
    def drawn(self) -> list[tuple[int, int]]:
        """The training pairs that have a negative."""
        return [(u, v) for u, v in self.train if self.candidates(u, self.train)]


def words(counter: tuple[int, int, int, int], key: tuple[int, int]) -> list[int]:
    """The four words of Philox for one counter."""
    c0, c1, c2, c3 = counter
    return [int(word) for word in philox_words_of(c0, c1, c2, c3, key)]


def philox_words_of(c0: int, c1: int, c2: int, c3: int, key: tuple[int, int]) -> np.ndarray:
    """The words of one counter, which ``philox_words`` has in the columns 4 c1 to 4 c1 + 3."""
    node = np.array([c0], np.uint64)
    return philox_words(node, 4 * (c1 + 1), c2, c3, key[0] | key[1] << 32)[0, 4 * c1 :]


def key_of(seed: int, tag: int) -> tuple[int, int]:
    first, second, *_ = words((tag, 0, 0, LOW), (seed & LOW, seed >> 32))
    return first, second


def negatives(links: Links, seed: int, tag: int, epoch: int, number: int, node: int, pairs, num: int) -> list[int]:
    """The negatives of draw ``number``; none if the node is joined with every candidate."""
    free = links.candidates(node, pairs)
    key, ids = key_of(seed, tag), []
    for k in range(num if free else 0):
        low, high, *_ = words((number, 0, k, epoch), key)
        ids.append(free[(low | high << 32) % len(free)])
    return ids


def permuted(number: int, size: int, seed: int, epoch: int) -> int:
    """Where pair ``number`` of ``size`` stands in ``epoch``."""
    key, bits = key_of(seed, TRAINING), max(2, (size - 1).bit_length())
    keys = [low | high << 32 for low, high, *_ in (words((i, 0, LOW, epoch), key) for i in range(8))]
    half = bits // 2
    for _ in count():
        low, high = number % 2**half, number >> half
        for turn in range(0, 8, 2):
            low ^= mixed(high + keys[turn]) % 2**half
            high ^= mixed(low + keys[turn + 1]) % 2 ** (bits - half)
        number = high << half | low
        if number < size:
            return number
    raise AssertionError


def mixed(word: int) -> int:
    word &= 2**64 - 1
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & 2**64 - 1
    word = (word ^ word >> 27) * 0x94D049BB133111EB & 2**64 - 1
    return word ^ word >> 31


def batches(links: Links, seed: int, epoch: int, batch_size: int | None, num_negatives: int) -> list[list[list[int]]]:
    """The draws of each step of ``epoch``: owner, partner, and negatives."""
    size = len(links.drawn)
    steps: list[list[list[int]]] = [[] for _ in range(1 if batch_size is None else -(-size // batch_size))]
    for number, (node, partner) in enumerate(links.drawn):
        drawn = negatives(links, seed, TRAINING, epoch, number, node, links.train, num_negatives)
        batch = 0 if batch_size is None else permuted(number, size, seed, epoch) // batch_size
        steps[batch].append([node, partner, *drawn])
    return steps


def mean_of_powers(embedding: Tensor, adj: np.ndarray, num_layers: int) -> Tensor:
    matrix = torch.from_numpy(normalize((adj != 0).astype(float), "sym", self_loops=False))
    powers = [embedding]
    for _ in range(num_layers):
        powers.append(matrix @ powers[-1])
    return torch.stack(powers).mean(dim=0)


def loss_of(output: Tensor, draws: list[list[int]], ranking: bool) -> Tensor:
    """The loss of a step, pair by pair: the mean over its draws."""
    total = torch.zeros((), dtype=output.dtype)
    for node, partner, *drawn in draws:
        score, others = output[node] @ output[partner], torch.stack([output[node] @ output[end] for end in drawn])
        if ranking:
            total = total - torch.nn.functional.logsigmoid(score - others[0])
        else:
            wanted = torch.zeros(1 + len(drawn), dtype=output.dtype)
            wanted[0] = 1
            scores = torch.cat([score[None], others])
            total = total + torch.nn.functional.binary_cross_entropy_with_logits(scores, wanted)
    return total / len(draws)


def best_items(output: np.ndarray, links: Links, k: int) -> np.ndarray:
    """(num_users, k), -1 where there are no more items; of equal scores the lower id is better."""
    best = np.full((links.num_users, k), -1)
    for user in range(links.num_users):
        free = links.candidates(user, links.train)
        ordered = sorted(free, key=lambda item: (-(output[user] @ output[item]), item))[:k]
        best[user, : len(ordered)] = ordered
    return best


def ranking_metric(best: np.ndarray, pairs: list[tuple[int, int]], name: str) -> float | None:
    kind, _, at = name.partition("@")
    scores = []
    for user, items in enumerate(best):
        wanted = {item for owner, item in pairs if owner == user}
        hits = [item in wanted for item in items[: int(at)]]
        if wanted and kind == "recall":
            scores.append(sum(hits) / len(wanted))
        elif wanted:
            ideal = sum(1 / np.log2(place + 2) for place in range(min(len(wanted), int(at))))
            scores.append(sum(hit / np.log2(place + 2) for place, hit in enumerate(hits)) / ideal)
    return float(np.mean(scores)) if scores else None


def held_out_ranks(output: np.ndarray, links: Links, split: int, seed: int, num: int) -> list[float]:
    """The ranks of the held-out pairs of a split, 1 for validation and 2 for testing."""
    every = [*links.train, *links.val, *links.test]
    ranks = []
    for number, (node, partner) in enumerate((links.val, links.test)[split - 1]):
        drawn = negatives(links, seed, EVALUATION, split, number, node, every, num)
        score, others = output[node] @ output[partner], np.array([output[node] @ output[end] for end in drawn])
        if drawn:
            ranks.append(1 + (others > score).sum() + (others == score).sum() / 2)
    return ranks
