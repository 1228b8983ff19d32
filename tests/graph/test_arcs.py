"""CSR arrays of arcs that arrive piece by piece, against scipy; ids of every kind, against numpy.unique."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from scipy.sparse import coo_array

from fullgnn.graph.arcs import ArcBuilder
from fullgnn.graph.datasets.words import arrow_texts
from fullgnn.graph.ids import IntegerIds, TextIds, ranks_in

PIECE = 777


def drawn(num_ids: int, num_arcs: int) -> tuple[np.ndarray, np.ndarray]:
    """The ends of arcs with repeats: ids of 64 bits, of which some are negative."""
    rng = np.random.default_rng(num_ids)
    ids = rng.integers(-(2**63), 2**63, num_ids)
    return rng.choice(ids, num_arcs), rng.choice(ids, num_arcs)


@pytest.mark.parametrize(("num_ids", "num_arcs"), [(1, 1), (40, 3000), (5000, 20_000)])
@pytest.mark.parametrize("dtype", [None, np.float32, np.float64])
def test_arcs_of_integer_ids(num_ids: int, num_arcs: int, dtype: type | None) -> None:
    source, target = drawn(num_ids, num_arcs)
    weight = np.random.default_rng(1).integers(-1, 2, num_arcs) if dtype else np.ones(num_arcs, int)
    ids, builder = IntegerIds(), ArcBuilder(weight_dtype=dtype)
    for first in range(0, num_arcs, PIECE):
        some = slice(first, first + PIECE)
        builder.add(ids.number(source[some]), ids.number(target[some]), weight[some] if dtype else None)
    order = ids.in_order()
    names = ids.names[order]
    np.testing.assert_array_equal(names, np.unique([source, target]))
    arcs = builder.finish(len(names), ranks_in(order))
    ends = np.searchsorted(names, target), np.searchsorted(names, source)
    expected = coo_array((weight, ends), shape=(len(names),) * 2).tocsr()
    num_distinct = expected.nnz
    expected.eliminate_zeros()
    expected.sort_indices()
    np.testing.assert_array_equal(arcs.indptr, expected.indptr)
    np.testing.assert_array_equal(arcs.indices, expected.indices)
    assert (arcs.indptr.dtype, arcs.indices.dtype) == (np.int64, np.int32)
    if dtype is not None:
        assert arcs.weight is not None and arcs.weight.dtype == dtype
        np.testing.assert_array_equal(arcs.weight, expected.data)  # small integers: every sum is exact
    assert arcs.remarks == {"merged_arcs": num_arcs - num_distinct, "zero_arcs": num_distinct - expected.nnz}
    assert len(builder) == 0


def test_no_arcs_and_nodes_without_arcs() -> None:
    arcs = ArcBuilder().finish(3)
    assert arcs.indptr.tolist() == [0, 0, 0, 0] and not len(arcs.indices)
    builder = ArcBuilder(weight_dtype=np.float64)
    builder.add(np.array([2, 2], np.int32), np.array([1, 1], np.int32), np.array([1.5, -1.5]))
    arcs = builder.finish(4)
    assert arcs.indptr.tolist() == [0, 0, 0, 0, 0] and arcs.remarks == {"merged_arcs": 1, "zero_arcs": 1}


@pytest.mark.parametrize("large", [False, True])
def test_ids_that_are_texts(large: bool) -> None:
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 4000, 20_000).tolist()
    texts = ["" if number == 7 else f"\u00fc{number}" * (1 + number % 5) for number in numbers]
    kind = pyarrow.large_string()
    array = pyarrow.array(texts, kind)
    ids, codes = TextIds(), []
    for first in range(0, len(texts), PIECE if large else 3):
        piece = array.slice(first, PIECE if large else 3)
        codes.append(ids.number(*arrow_texts(piece)))
        np.testing.assert_array_equal(ids.find(*arrow_texts(piece)), codes[-1])
        if first > 2000 and not large:
            break
    all_codes = np.concatenate(codes)
    expected, inverse = np.unique(np.array(texts[: len(all_codes)]), return_inverse=True)
    order = ids.in_order()
    assert ids.names[order].tolist() == expected.tolist()
    np.testing.assert_array_equal(ranks_in(order)[all_codes], inverse)
    assert ids.find(*arrow_texts(pyarrow.array(["nobody", "\u00fc"], kind))).tolist() == [-1, -1]


MEASURE = """
import sys
import fullgnn.graph.arcs, fullgnn.graph.ids, pyarrow.parquet
from fullgnn.graph import Graph

def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) * 1024

Graph.from_tables({"source": [5], "target": [2**40]}, features="identity")  # compiles
before = peak()
graph = Graph.from_tables(sys.argv[1], features="identity")
print(peak() - before, graph.num_edges, graph.num_nodes)
"""


@pytest.mark.sample(8)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_memory_of_a_large_table(tmp_path: Path, every_case: bool) -> None:
    """At most 3 x (4 bytes an arc + 8 bytes a node), and what pyarrow holds of a file of any size."""
    num_arcs, num_nodes = (20_000_000, 2_000_000) if every_case else (4_000_000, 400_000)
    rng = np.random.default_rng(0)
    ids = np.cumsum(rng.integers(1, 2**40, num_nodes))
    ends = rng.integers(0, num_nodes, (2, num_arcs))
    columns = dict(zip(("source", "target"), ids[ends]))
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "e.parquet", use_dictionary=False)
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, tmp_path / "e.parquet"], capture_output=True, text=True, check=True
    )
    peak, num_edges, num_read = map(int, done.stdout.split())
    assert num_read == np.count_nonzero(np.bincount(ends.ravel())) and 0.999 * num_arcs < num_edges <= num_arcs
    assert peak <= 3 * (4 * num_edges + 8 * num_read) + 2**27, f"{peak / 2**20:.0f} MiB"
