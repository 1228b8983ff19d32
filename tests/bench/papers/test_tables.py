"""Tables 2 and 3: derived facts are compared with simple counts."""

from pathlib import Path

import pytest

from fullgnn.bench.papers.config import JobShape, load_target, run
from fullgnn.bench.papers.hetu.orders import blocks


@pytest.mark.parametrize(
    ("scheme", "p", "r"), [("1d", 3, 1), ("1d", 8, 1), ("1.5d", 4, 2), ("1.5d", 6, 2), ("1.5d", 4, 4)]
)
def test_blocks_are_those_that_dealing_them_out_gives(scheme: str, p: int, r: int) -> None:
    b = p // r
    held = {(row, replica): 0 for row in range(b) for replica in range(r)}
    for row in range(b):
        for column in range(b):
            held[row, column % r] += 1  # deals the b blocks of a row to its r ranks as evenly as possible
    assert blocks(JobShape(scheme, p, r)) == {
        "block rows": b,
        "block columns": b,
        "blocks per rank": max(held.values()),
    }


def test_table2_agrees_with_the_paper() -> None:
    result = run("table2", load_target("table2"))
    cells = [cell for row in result.rows for cell in row.cells.values()]
    assert len(cells) == 15
    assert all(cell.ours == cell.paper and cell.origin == "derived" for cell in cells)


def test_table3_counts_the_graphs_and_has_published_numbers_beside_full_size(tmp_path: Path) -> None:
    cfg = load_target("table3", "scale=0.01", "datasets=[reddit-like,archaea-like]", f"data_root={tmp_path}")
    result = run("table3", cfg)
    assert [row.labels[0] for row in result.rows] == ["Reddit", "Reddit", "Archaea", "Archaea"]
    here, full, _, archaea = (row.cells for row in result.rows)
    graph = result.cases[0].graph
    assert (here["nodes"].ours, here["edges"].ours) == (graph.num_nodes, graph.num_edges)
    assert here["features"].ours == 602
    assert (full["nodes"].ours, full["nodes"].paper) == (232965, 232965)
    assert full["edges"].ours == 114848857 - 232965
    assert abs(full["edges"].ours / full["edges"].paper - 1) < 1e-3  # type: ignore[operator]
    assert archaea["edges"].paper is None
