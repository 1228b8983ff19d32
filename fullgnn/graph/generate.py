"""Generate random graphs with the structure of real ones: a hierarchical stochastic block model, and R-MAT.

Both return CSR arrays with an exact number of distinct off-diagonal entries. Node ids are shuffled, so that a
reordering can recover structure. Pairs (a, b) are handled as the integers ``a * num_nodes + b``: sorting
them sorts by row, then column, and equal neighbours are duplicates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fullgnn.errors import ConfigError
from fullgnn.graph.checks import check_num_nodes
from fullgnn.telemetry.machine import check_fits

MAX_DENSITY = 0.20
SAMPLING_ROUNDS = 8  # rounds of weighted sampling; pairs that are still missing are placed elsewhere
DEGREE_EXPONENT = 2.6  # tail of the expected degrees, P(degree > d) ~ d^(1 - 2.6)
MAX_DEGREE_RATIO = 40.0  # largest over smallest expected degree
CLIQUE_SIZES = (20, 44)  # nodes in a group of the finest level
BRANCHING = (5, 11)  # number of groups of one level in a group of the next
OCCUPANCY = 0.5  # largest fraction of a group's possible pairs that become edges


@dataclass(frozen=True, eq=False)
class GeneratedGraph:
    """CSR structure of a random graph, and the groups from which the graph was generated."""

    indptr: np.ndarray
    """(num_nodes + 1,) int64."""
    indices: np.ndarray
    """(num_entries,) int32, sorted within a row."""
    groups: np.ndarray
    """(num_levels, num_nodes) int32, group of every node at each level, communities first, cliques last."""


def hierarchical_sbm(
    num_nodes: int, num_entries: int, num_communities: int, global_share: float = 0.15, seed: int = 0
) -> GeneratedGraph:
    """Generate a degree-corrected stochastic block model of nested communities, down to small cliques.

    Degree correction is Karrer and Newman's (2011): endpoints are drawn in proportion to a heavy-tailed
    expected degree. Every pair of nodes belongs to one level, the finest whose group holds both.
    The target is that a fraction ``global_share`` of the edges joins communities, and that the other levels
    share the rest equally. But no group fills more than half of its own pairs: surplus edges move to the enclosing
    group, so that a dense graph has coarser structure than a sparse one. Edges that remain at the end join
    uniformly random pairs.

    Args:
        num_entries: exact number of stored non-zeros; even, since every edge is stored in both directions.
    """
    ops = HostArrays(np.random.default_rng(seed))
    keys, new_id, levels = block_model(ops, num_nodes, num_entries, num_communities, global_share)
    groups = np.empty((len(levels), num_nodes), dtype=np.int32)
    for row, starts in zip(groups, reversed(levels), strict=True):
        row[new_id] = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    return GeneratedGraph(*csr_from_keys(in_both_directions(keys, num_nodes), num_nodes), groups)


class HostArrays:
    """NumPy versions of the operations of the block model that NumPy and torch name differently.

    ``generate_on_device.DeviceArrays`` has the same methods in torch. ``xp`` is the library for all other operations.
    """

    xp = np

    def __init__(self, rng: np.random.Generator):
        self.rng, self.random, self.integers, self.permutation = rng, rng.random, rng.integers, rng.permutation

    def on_device(self, array: np.ndarray) -> np.ndarray:
        return array

    repeat = staticmethod(np.repeat)

    def draw(
        self, cumulative: np.ndarray, base: np.ndarray, width: np.ndarray, counts: np.ndarray, count: int
    ) -> np.ndarray:
        """Draw ``counts`` nodes of each group in proportion to their expected degrees, ``count`` altogether."""
        from fullgnn.graph._keys_cpu import nodes_at  # imported here, since it imports numba

        return nodes_at(cumulative, base, width, counts, self.random(count))

    def distinct(self, keys: np.ndarray) -> np.ndarray:
        """Return the distinct values of ``keys`` in ascending order; may sort ``keys`` in place."""
        from fullgnn.graph._keys_cpu import sort_keys, without_repeats  # imported here, since it imports numba

        return without_repeats(sort_keys(keys))


def block_model(
    ops: Any, num_nodes: int, num_entries: int, num_communities: int, global_share: float
) -> tuple[Any, Any, list[np.ndarray]]:
    """Generate the edges of :func:`hierarchical_sbm`, the shuffled ids of its nodes, and the groups of its levels.

    Args:
        ops: the operations on arrays, see :class:`HostArrays`; the edges are an array of their library.

    Returns:
        (num_entries / 2,) int64, the pair ``one * num_nodes + other`` of the shuffled ids of each edge, in any order;
        (num_nodes,) int64, the shuffled id of each node, where the nodes of a group are consecutive; and the result of
        :func:`nested_groups`.

    Raises:
        ConfigError: no graph can have these sizes.
    """
    check_density(num_nodes, num_entries)
    if num_entries % 2:
        raise ConfigError(f"num_entries={num_entries} is odd, but a symmetric graph stores every edge twice")
    if not 1 <= num_communities <= num_nodes:
        raise ConfigError(f"{num_nodes} nodes cannot form {num_communities} communities: raise scale or num_nodes")
    if not 0 <= global_share <= 1:
        raise ConfigError(f"global_share={global_share} is not a share: choose a value from 0 to 1")
    levels = nested_groups(ops.rng, num_nodes, num_communities)
    xp, num_pairs = ops.xp, num_entries // 2
    cumulative = cumulative_degrees(ops, num_nodes)

    keys = [ops.on_device(np.empty(0, dtype=np.int64))]
    carry = xp.zeros_like(cumulative[1:])  # edges that each group of the level below could not hold
    children = ops.on_device(np.arange(num_nodes + 1))  # starts of those groups; below the finest level, single nodes
    for number, bounds in enumerate([*levels, np.array([0, num_nodes])]):
        starts = ops.on_device(bounds)
        share = global_share if number == len(levels) else (1 - global_share) / len(levels)
        parent = xp.searchsorted(starts, children[:-1], side="right") - 1
        mass = xp.diff(cumulative[starts]) / cumulative[-1]
        demand = num_pairs * share * mass + xp.bincount(parent, carry, minlength=len(mass))
        possible = _num_pairs(xp, starts) - xp.bincount(parent, _num_pairs(xp, children), minlength=len(mass))
        until = xp.floor(xp.cumsum(xp.minimum(demand, OCCUPANCY * possible), 0) + 1e-6)
        quota = xp.asarray(xp.diff(until, prepend=xp.zeros_like(until[:1])), dtype=xp.int64)
        level_keys, placed = _sample_level(ops, num_nodes, starts, children, cumulative, quota)
        keys += level_keys
        carry, children = demand - placed, starts
    keys += _fill_uniformly(ops, num_nodes, keys, num_pairs, symmetric=True)
    low, high = split_keys(xp.concatenate(keys), num_nodes)
    new_id = ops.permutation(num_nodes)
    return new_id[low] * num_nodes + new_id[high], new_id, levels


def cumulative_degrees(ops: Any, num_nodes: int) -> Any:
    """Draw heavy-tailed expected degrees; (num_nodes + 1,) their sums before each node, and after the last."""
    degree = ((1 - ops.random(num_nodes)) ** (-1 / (DEGREE_EXPONENT - 1))).clip(max=MAX_DEGREE_RATIO)
    return ops.xp.concatenate([ops.xp.zeros_like(degree[:1]), ops.xp.cumsum(degree, 0)])


def node_at(xp: Any, cumulative: Any, position: Any) -> Any:
    """The nodes whose ranges of ``cumulative`` hold the positions: random positions draw nodes by expected degree."""
    return (xp.searchsorted(cumulative, position, side="right") - 1).clip(max=len(cumulative) - 2)


def rmat(
    num_nodes: int, num_entries: int, num_groups: int, a: float, b: float, c: float, seed: int = 0
) -> GeneratedGraph:
    """Generate a directed R-MAT graph (Chakrabarti, Zhan, Faloutsos, 2004): each entry descends by quadrants.

    Per level, an entry goes to the upper left quadrant with probability ``a``, upper right ``b``, lower left
    ``c`` and lower right ``1 - a - b - c``. Entries outside ``num_nodes``, on the diagonal or already taken
    are drawn again; the few still missing after all rounds are uniformly random. Groups are equal ranges of the
    unshuffled ids.
    """
    check_density(num_nodes, num_entries)
    if min(a, b, c) < 0 or a + b + c > 1:
        raise ConfigError(f"a={a}, b={b}, c={c} are no quadrant probabilities: none below 0, their sum at most 1")
    if not 1 <= num_groups <= num_nodes:
        raise ConfigError(f"{num_nodes} nodes cannot form {num_groups} groups: raise num_nodes")
    rng = np.random.default_rng(seed)
    ops = HostArrays(rng)
    keys = [np.empty(0, dtype=np.int64)]
    need = num_entries
    for _ in range(SAMPLING_ROUNDS):
        row, column = _rmat_entries(rng, need, (num_nodes - 1).bit_length(), a, b, c)
        valid = (row != column) & (row < num_nodes) & (column < num_nodes)
        keys.append(_new_keys(ops, row[valid] * num_nodes + column[valid], keys))
        need -= len(keys[-1])
    keys += _fill_uniformly(ops, num_nodes, keys, num_entries, symmetric=False)

    row, column = split_keys(np.concatenate(keys), num_nodes)
    new_id = rng.permutation(num_nodes)
    groups = np.empty((1, num_nodes), dtype=np.int32)
    groups[0, new_id] = np.arange(num_nodes) * num_groups // num_nodes
    return GeneratedGraph(*csr_from_keys(new_id[row] * num_nodes + new_id[column], num_nodes), groups)


def check_density(num_nodes: int, num_entries: int) -> None:
    """Refuse a density that random sampling cannot reach; the error names the largest possible count."""
    if num_nodes < 1 or num_entries < 0:
        raise ConfigError(f"{num_nodes} nodes with {num_entries} entries make no graph: raise num_nodes or num_edges")
    limit = int(MAX_DENSITY * num_nodes * (num_nodes - 1))
    if num_entries > limit:
        raise ConfigError(
            f"{num_nodes} nodes with {num_entries} off-diagonal entries are denser than {MAX_DENSITY:.0%} (at"
            f" most {limit} entries): lower degree_scale or num_edges, or raise scale or num_nodes"
        )


def check_size(name: str, num_nodes: int, num_entries: int, num_features: int, num_classes: int, scale: float) -> None:
    """Refuse a graph with fewer nodes than classes, with more than any graph may have, or whose arrays do not fit into
    this machine's memory.

    Raises:
        ConfigError, DataError: one line with the numbers.
    """
    if num_nodes < max(num_classes, 2):
        raise ConfigError(f"scale={scale:g} leaves {num_nodes} nodes for {num_classes} classes: raise dataset.scale")
    check_num_nodes(num_nodes, name)
    num_bytes = 4 * num_nodes * num_features + 4 * num_entries + 8 * num_nodes
    what = f"{name} with {num_nodes} nodes, {num_entries} non-zeros and {num_features} features"
    check_fits(num_bytes, what, "choose smaller sizes, or take a machine with more memory")


def nested_groups(rng: np.random.Generator, num_nodes: int, num_communities: int) -> list[np.ndarray]:
    """Draw the group starts of each level, finest first, with num_nodes at the end.

    Each start is also a start of the level below.
    """
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
    ops: Any, num_nodes: int, starts: Any, children: Any, cumulative: Any, quota: Any
) -> tuple[list[Any], Any]:
    """Sample distinct pairs of nodes that share a group of this level but not one of the level below.

    Each round draws, per group, as many pairs as are still missing, both ends in proportion to their expected
    degrees. So a group never gets too many pairs, and none has to be removed.

    Returns:
        sorted keys, an array per round; and the number of pairs placed in each group, at most its quota.
    """
    xp = ops.xp
    sizes = xp.diff(children)
    child = ops.repeat(ops.on_device(np.arange(len(sizes))), sizes)
    base, width = cumulative[starts[:-1]], xp.diff(cumulative[starts])
    keys: list[Any] = []
    placed = xp.zeros_like(quota)

    for _ in range(SAMPLING_ROUNDS):
        missing = quota - placed
        count = int(missing.sum())
        if count == 0:
            break
        first, second = (ops.draw(cumulative, base, width, missing, count) for _ in range(2))
        apart = child[first] != child[second]
        first, second = first[apart], second[apart]
        keys.append(_new_keys(ops, xp.minimum(first, second) * num_nodes + xp.maximum(first, second), keys))
        placed = placed + xp.diff(xp.searchsorted(keys[-1], starts * num_nodes))  # groups are ranges of keys
    return keys, placed


def _fill_uniformly(ops: Any, num_nodes: int, keys: list[Any], total: int, symmetric: bool) -> list[Any]:
    """Draw uniformly random new pairs until there are ``total``; the density is limited, so most pairs are new.

    Args:
        keys: sorted arrays, which have no key in common.
    """
    xp = ops.xp
    extra: list[Any] = []
    need = total - sum(map(len, keys))
    while need > 0:
        first, second = ops.integers(num_nodes, size=(2, need))
        apart = first != second
        first, second = first[apart], second[apart]
        if symmetric:
            first, second = xp.minimum(first, second), xp.maximum(first, second)
        extra.append(_new_keys(ops, first * num_nodes + second, [*keys, *extra]))
        need -= len(extra[-1])
    return extra


def _new_keys(ops: Any, candidates: Any, known: list[Any]) -> Any:
    """The distinct candidates, sorted, that are in none of the ``known`` sorted arrays."""
    candidates = ops.distinct(candidates)
    for taken in known:
        if len(taken):
            slot = ops.xp.searchsorted(taken, candidates).clip(max=len(taken) - 1)
            candidates = candidates[taken[slot] != candidates]
    return candidates


def _num_pairs(xp: Any, starts: Any) -> Any:
    """Unordered pairs of nodes inside each group."""
    size = xp.asarray(xp.diff(starts), dtype=xp.float64)
    return size * (size - 1) / 2


def _rmat_entries(
    rng: np.random.Generator, count: int, num_bits: int, a: float, b: float, c: float
) -> tuple[np.ndarray, np.ndarray]:
    """Draw ``count`` entries of an R-MAT matrix with 2^num_bits rows, with one quadrant choice per bit."""
    row, column = np.zeros((2, count), dtype=np.int64)
    for _ in range(num_bits):
        quadrant = rng.random(count)
        row = 2 * row + (quadrant >= a + b)
        column = 2 * column + (((quadrant >= a) & (quadrant < a + b)) | (quadrant >= a + b + c))
    return row, column


def split_keys(keys: Any, num_nodes: int) -> tuple[Any, Any]:
    """The two nodes of each pair."""
    if isinstance(keys, np.ndarray):
        from fullgnn.graph import _keys_cpu  # imported here, since it imports numba

        return _keys_cpu.split_keys(keys, num_nodes)
    first = keys // num_nodes
    return first, keys - first * num_nodes


def in_both_directions(keys: np.ndarray, num_nodes: int) -> np.ndarray:
    """The pairs and their transposes."""
    first, second = split_keys(keys, num_nodes)
    return np.concatenate([keys, second * num_nodes + first])


def csr_from_keys(keys: np.ndarray, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return indptr and indices of distinct keys, which may be in any order; may sort ``keys`` in place."""
    from fullgnn.graph._keys_cpu import csr_of, sort_keys  # imported here, since it imports numba

    return csr_of(sort_keys(keys), num_nodes)
