"""Random graphs with the shape of real ones: a hierarchical stochastic block model, and R-MAT.

Both return CSR arrays with an exact number of distinct off-diagonal entries under shuffled node ids, so that
a reordering has something to find. Pairs (a, b) are handled as the integers ``a * num_nodes + b``: sorting
them sorts by row, then column, and equal neighbours are duplicates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fullgnn.errors import ConfigError

MAX_DENSITY = 0.20
SAMPLING_ROUNDS = 8  # of weighted sampling; what duplicates still leave unfilled is placed elsewhere
DEGREE_EXPONENT = 2.6  # tail of the expected degrees, P(degree > d) ~ d^(1 - 2.6)
MAX_DEGREE_RATIO = 40.0  # largest over smallest expected degree
CLIQUE_SIZES = (20, 44)  # nodes in a group of the finest level
BRANCHING = (5, 11)  # groups of one level in a group of the next
OCCUPANCY = 0.5  # largest share of a group's possible pairs that become edges


@dataclass(frozen=True, eq=False)
class GeneratedGraph:
    """Structure of a random graph, and the groups it was made of."""

    indptr: np.ndarray
    """(num_nodes + 1,) int64."""
    indices: np.ndarray
    """(num_entries,) int32, sorted within a row."""
    groups: np.ndarray
    """(num_levels, num_nodes) int32, group of every node at each level, communities first, cliques last."""


def hierarchical_sbm(
    num_nodes: int, num_entries: int, num_communities: int, global_share: float = 0.15, seed: int = 0
) -> GeneratedGraph:
    """A degree-corrected stochastic block model of communities inside communities, down to small cliques.

    Degree correction is Karrer and Newman's (2011): endpoints are drawn in proportion to a heavy-tailed
    expected degree. Every pair of nodes belongs to one level, the finest whose group holds both.
    ``global_share`` of the edges is meant to join communities, and the other levels share the rest equally;
    but no group fills more than half of its own pairs, and what it cannot hold flows to the group around it,
    so that a dense graph is coarse where a sparse one is cliquish. Edges left over at the end join uniformly
    random pairs.

    Args:
        num_entries: exact number of stored non-zeros; even, since every edge is stored in both directions.
    """
    check_density(num_nodes, num_entries)
    if num_entries % 2:
        raise ConfigError(f"num_entries={num_entries} is odd, but a symmetric graph stores every edge twice")
    if not 1 <= num_communities <= num_nodes:
        raise ConfigError(f"{num_nodes} nodes cannot form {num_communities} communities: raise scale or num_nodes")
    if not 0 <= global_share <= 1:
        raise ConfigError(f"global_share={global_share} is not a share: choose a value from 0 to 1")
    rng = np.random.default_rng(seed)
    num_pairs = num_entries // 2
    levels = nested_groups(rng, num_nodes, num_communities)
    degree = np.minimum((1 - rng.random(num_nodes)) ** (-1 / (DEGREE_EXPONENT - 1)), MAX_DEGREE_RATIO)
    cumulative = np.concatenate([[0.0], np.cumsum(degree)])

    keys = [np.empty(0, dtype=np.int64)]
    carry = np.zeros(num_nodes)  # edges that each group of the level below could not hold
    children = np.arange(num_nodes + 1)  # starts of those groups; below the finest level, single nodes
    whole = np.array([0, num_nodes])
    for starts in [*levels, whole]:
        share = global_share if starts is whole else (1 - global_share) / len(levels)
        parent = np.searchsorted(starts, children[:-1], side="right") - 1
        mass = np.diff(cumulative[starts]) / cumulative[-1]
        demand = num_pairs * share * mass + np.bincount(parent, carry, minlength=len(mass))
        possible = _num_pairs(starts) - np.bincount(parent, _num_pairs(children), minlength=len(mass))
        quota = np.diff(
            np.floor(np.cumsum(np.minimum(demand, OCCUPANCY * possible)) + 1e-6).astype(np.int64), prepend=0
        )
        level_keys, placed = _sample_level(rng, num_nodes, starts, children, cumulative, quota)
        keys += level_keys
        carry, children = demand - placed, starts
    keys += _fill_uniformly(rng, num_nodes, keys, num_pairs, symmetric=True)

    low, high = _split_keys(np.concatenate(keys), num_nodes)
    new_id = rng.permutation(num_nodes)
    low, high = new_id[low], new_id[high]
    both = np.concatenate([low * num_nodes + high, high * num_nodes + low])
    groups = np.empty((len(levels), num_nodes), dtype=np.int32)
    for row, starts in zip(groups, reversed(levels), strict=True):
        row[new_id] = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    return GeneratedGraph(*_csr_from_keys(both, num_nodes), groups)


def rmat(
    num_nodes: int, num_entries: int, num_groups: int, a: float, b: float, c: float, seed: int = 0
) -> GeneratedGraph:
    """A directed R-MAT graph (Chakrabarti, Zhan, Faloutsos, 2004): each entry descends by quadrants.

    Per level, an entry goes to the upper left quadrant with probability ``a``, upper right ``b``, lower left
    ``c`` and lower right ``1 - a - b - c``. Entries outside ``num_nodes``, on the diagonal or already taken
    are drawn again; the few that resist are uniformly random. Groups are equal ranges of the unshuffled ids.
    """
    check_density(num_nodes, num_entries)
    if min(a, b, c) < 0 or a + b + c > 1:
        raise ConfigError(f"a={a}, b={b}, c={c} are no quadrant probabilities: none below 0, their sum at most 1")
    if not 1 <= num_groups <= num_nodes:
        raise ConfigError(f"{num_nodes} nodes cannot form {num_groups} groups: raise num_nodes")
    rng = np.random.default_rng(seed)
    keys = [np.empty(0, dtype=np.int64)]
    need = num_entries
    for _ in range(SAMPLING_ROUNDS):
        row, column = _rmat_entries(rng, need, (num_nodes - 1).bit_length(), a, b, c)
        valid = (row != column) & (row < num_nodes) & (column < num_nodes)
        keys.append(_new_keys(row[valid] * num_nodes + column[valid], keys))
        need -= len(keys[-1])
    keys += _fill_uniformly(rng, num_nodes, keys, num_entries, symmetric=False)

    row, column = _split_keys(np.concatenate(keys), num_nodes)
    new_id = rng.permutation(num_nodes)
    groups = np.empty((1, num_nodes), dtype=np.int32)
    groups[0, new_id] = np.arange(num_nodes) * num_groups // num_nodes
    return GeneratedGraph(*_csr_from_keys(new_id[row] * num_nodes + new_id[column], num_nodes), groups)


def check_density(num_nodes: int, num_entries: int) -> None:
    """Refuse what random sampling cannot fill, with the largest count that it can."""
    if num_nodes < 1 or num_entries < 0:
        raise ConfigError(f"{num_nodes} nodes with {num_entries} entries make no graph: raise num_nodes or num_edges")
    limit = int(MAX_DENSITY * num_nodes * (num_nodes - 1))
    if num_entries > limit:
        raise ConfigError(
            f"{num_nodes} nodes with {num_entries} off-diagonal entries are denser than {MAX_DENSITY:.0%} (at"
            f" most {limit} entries): lower degree_scale or num_edges, or raise scale or num_nodes"
        )


def nested_groups(rng: np.random.Generator, num_nodes: int, num_communities: int) -> list[np.ndarray]:
    """Group starts of each level (num_nodes at the end), finest first; each is one of the level below."""
    community_size = num_nodes / num_communities
    levels = [np.arange(num_nodes + 1)]  # single nodes, dropped at the end
    low, high = CLIQUE_SIZES
    while num_nodes / (len(levels[-1]) - 1) * (low + high) / 2 <= community_size / 2:
        below = levels[-1]
        sizes = rng.integers(low, high, endpoint=True, size=(len(below) - 1) // low + 1)
        cuts = np.cumsum(sizes)
        levels.append(below[np.concatenate([[0], cuts[cuts < len(below) - 1], [len(below) - 1]])])
        low, high = BRANCHING
    # Communities of uneven size, each of at least one group of the level below.
    below = levels[-1]
    weight = rng.pareto(3.0, num_communities) + 1
    spare = np.cumsum(weight) / weight.sum() * (len(below) - 1 - num_communities)
    cuts = np.arange(1, num_communities + 1) + np.round(spare).astype(np.int64)
    levels.append(below[np.concatenate([[0], cuts])])
    return levels[1:]


def _sample_level(
    rng: np.random.Generator,
    num_nodes: int,
    starts: np.ndarray,
    children: np.ndarray,
    cumulative: np.ndarray,
    quota: np.ndarray,
) -> tuple[list[np.ndarray], np.ndarray]:
    """Distinct pairs of nodes that share a group of this level but not one of the level below.

    Each round draws, per group, as many pairs as are still missing, both ends in proportion to their expected
    degrees: never too many, so none has to be taken back.

    Returns:
        sorted keys, an array per round; and the number of pairs placed in each group, at most its quota.
    """
    child = np.repeat(np.arange(len(children) - 1), np.diff(children))
    keys: list[np.ndarray] = []
    placed = np.zeros_like(quota)
    for _ in range(SAMPLING_ROUNDS):
        missing = quota - placed
        count = int(missing.sum())
        if count == 0:
            break
        base = np.repeat(cumulative[starts[:-1]], missing)
        width = np.repeat(np.diff(cumulative[starts]), missing)
        first, second = (
            np.minimum(np.searchsorted(cumulative, base + rng.random(count) * width, side="right") - 1, num_nodes - 1)
            for _ in range(2)
        )
        apart = child[first] != child[second]
        first, second = first[apart], second[apart]
        keys.append(_new_keys(np.minimum(first, second) * num_nodes + np.maximum(first, second), keys))
        placed = placed + np.diff(np.searchsorted(keys[-1], starts * num_nodes))  # groups are ranges of keys
    return keys, placed


def _fill_uniformly(
    rng: np.random.Generator, num_nodes: int, keys: list[np.ndarray], total: int, symmetric: bool
) -> list[np.ndarray]:
    """Uniformly random new pairs that bring ``keys`` to ``total``; density is limited, so most are new."""
    merged = np.sort(np.concatenate(keys))
    extra: list[np.ndarray] = []
    need = total - len(merged)
    while need > 0:
        first, second = rng.integers(num_nodes, size=(2, need))
        apart = first != second
        first, second = first[apart], second[apart]
        if symmetric:
            first, second = np.minimum(first, second), np.maximum(first, second)
        extra.append(_new_keys(first * num_nodes + second, [merged, *extra]))
        need -= len(extra[-1])
    return extra


def _new_keys(candidates: np.ndarray, known: list[np.ndarray]) -> np.ndarray:
    """The distinct candidates, sorted, that are in none of the ``known`` sorted arrays."""
    candidates.sort()
    new = np.ones(len(candidates), dtype=bool)
    np.not_equal(candidates[1:], candidates[:-1], out=new[1:])
    candidates = candidates[new]
    for taken in known:
        if len(taken):
            slot = np.minimum(np.searchsorted(taken, candidates), len(taken) - 1)
            candidates = candidates[taken[slot] != candidates]
    return candidates


def _num_pairs(starts: np.ndarray) -> np.ndarray:
    """Unordered pairs of nodes inside each group."""
    size = np.diff(starts).astype(np.float64)
    return size * (size - 1) / 2


def _rmat_entries(
    rng: np.random.Generator, count: int, num_bits: int, a: float, b: float, c: float
) -> tuple[np.ndarray, np.ndarray]:
    """``count`` entries of an R-MAT matrix of 2^num_bits rows, one quadrant choice per bit."""
    row, column = np.zeros((2, count), dtype=np.int64)
    for _ in range(num_bits):
        quadrant = rng.random(count)
        row = 2 * row + (quadrant >= a + b)
        column = 2 * column + (((quadrant >= a) & (quadrant < a + b)) | (quadrant >= a + b + c))
    return row, column


def _split_keys(keys: np.ndarray, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    first = keys // num_nodes
    return first, keys - first * num_nodes


def _csr_from_keys(keys: np.ndarray, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """indptr and indices of distinct keys in any order; sorts ``keys`` in place."""
    keys.sort()
    indptr = np.searchsorted(keys, np.arange(num_nodes + 1) * num_nodes)
    return indptr, (keys % num_nodes).astype(np.int32)
