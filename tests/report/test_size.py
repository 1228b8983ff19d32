"""A page of twenty runs that differ in all that it draws can be mailed: it stays under 3 MB."""

from pathlib import Path

import numpy as np
import pytest

from fullgnn.reorder.structure import MAX_CELLS, Structure
from fullgnn.report.__main__ import report
from tests.report.folders import Page, record, write_epochs, write_run

pytest.importorskip("matplotlib")

MOST = {"nnz": 10**6, "peak_tensor_bytes": 10**8}
NUM_RUNS, NUM_EPOCHS, NUM_NODES = 20, 200, 23_296


@pytest.fixture
def coarse() -> None:
    """Pictures are as large as a user's."""


def busy_run(folder: Path, position: int) -> None:
    """A run of ``1, 2, 4 or 8`` ranks whose curves, orders and tiles are its own."""
    rng, p = np.random.default_rng(position), 2 ** (position % 4)
    bounds, parts = (np.linspace(0, NUM_NODES, count + 1).astype(int) for count in (MAX_CELLS, p))
    before = np.random.default_rng(NUM_RUNS).integers(0, 5000, (MAX_CELLS, MAX_CELLS))
    after = rng.permutation(before) * (rng.random(before.shape) < 0.7)
    first = record()["ranks"][0]
    told = record(
        world_size=p,
        epoch_time_ms={"median": 20 / p + position, "p20": 19 / p + position, "p80": 22 / p + position},
        tile_density=dict(zip(map(str, range(11)), rng.dirichlet(np.ones(11)))),
        ranks=[first | {key: int(rng.integers(most)) for key, most in MOST.items()} for _ in range(p)],
    )
    config = f"seed: 0\nruntime: {{nproc: {p}}}\nkey: {position // 4}\n"
    config += "".join(f"key_{k}: a value of some length\n" for k in range(150))
    name = f"runtime.nproc={p} reorder=order_{position // 4} model.hidden_channels=128"
    arrays = Structure(bounds, before, after, parts, rng.integers(1, 10**6, (p, p)))
    run = write_run(folder / name, told, config, arrays)
    epochs = np.arange(1, NUM_EPOCHS + 1)
    columns = {"epoch": epochs, "loss": 2 * np.exp(-epochs / (40 + position)) + 0.05 * rng.random(NUM_EPOCHS)}
    for split in ("train", "val", "test"):
        noise = 0.02 * rng.random(NUM_EPOCHS)
        columns[f"{split}_accuracy"] = 1 - 0.9 * np.exp(-epochs / (30 + position)) + noise
    lines = zip(*(column.tolist() for column in columns.values()))
    write_epochs(run, (dict(zip(columns, line)) for line in lines))


@pytest.mark.sample(0)
def test_a_page_of_twenty_runs_is_small(tmp_path: Path) -> None:
    for position in range(NUM_RUNS):
        busy_run(tmp_path, position)
    page = report([str(tmp_path)])
    assert page.stat().st_size < 3_000_000
    sections = Page(page.read_text()).sections
    assert len(sections["Time by phase"].images) == len(sections["Memory"].images) // 2 == 2  # a bar for each run
    assert "After ordering: the page has no map of runtime.nproc=" in sections["Adjacency"].text
    assert len(sections["Adjacency"].images) == 2 * (1 + 6)  # one before ordering: it is one dataset
