"""The table of launches, collectives and host waits of a training step.

    python -m tests.gpu_code.step_table docs/results/gpu.md

The command counts anew, on a fake GPU (``fake_cuda.py``), and writes the section of the page. A cell that has changed
since the section was first written shows both values, "before → now". Without a page, the command prints the section.
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from fullgnn.telemetry.screen import format_table
from tests.gpu_code.step_counts import CASES, Counts, counts_of
from tests.ranks import Ranks

HEADING = "## Launches, collectives and host waits of a step\n"
INTRODUCTION = """
Counted by `python -m tests.gpu_code.step_table docs/results/gpu.md`, without a GPU: small graphs (Karate, and 29 users
and items for LightGCN) are trained on tensors that say they are on a GPU. A larger graph needs more launches where its
rows have more kinds of length, or where an evaluation goes in pieces. An operator is a call of torch that is neither a
view nor an allocation, hence at least one launch. A collective is one call; a message to or from one rank counts as
one. A host wait is a call in which the host waits for a number or a size that the GPU computes, or for a copy; waits
for an event behind earlier work do not count. A step of a sampled SAGE or GCN has two layers and includes loading its
batch; "drawn" are batches with loader.sample_on_gpu=true, "cached" those with cache=all, whose evaluations are those of
the other batches. A step of LightGCN includes drawing its pairs. A step that is captured as a CUDA graph is refused if
it waits at all. "a → b" is before and after.
"""
COLUMNS = ("model", "ranks", "part", "Triton kernels", "operators", "collectives", "host waits", "the host waits in")
NUM_RANKS = (1, 2)


def rows_of(case: str, num_ranks: int, counts_of_parts: dict[str, Counts]) -> list[list[str]]:
    """The rows of the table for one case."""
    rows = []
    for part, counts in counts_of_parts.items():
        numbers = (counts.kernels, counts.operators, counts.collectives, sum(counts.waits.values()))
        waits = ", ".join(f"{number} {name}" for name, number in sorted(counts.waits.items()))
        rows.append([case, str(num_ranks), part, *map(str, numbers), waits or "-"])
    return rows


def rows_on(page: str) -> dict[tuple[str, ...], list[str]]:
    """The cells of the table on ``page``, by the first three."""
    section = page.partition(HEADING)[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return {tuple(row[:3]): row[3:] for row in rows[2:]}


def with_section(page: str, rows: list[list[str]]) -> str:
    """``page`` with a new section; cells keep their first values."""
    old = rows_on(page)
    cells = []
    for row in rows:
        before = [cell.partition(" → ")[0] for cell in old.get(tuple(row[:3]), row[3:])]
        cells.append(row[:3] + [now if now == then else f"{then} → {now}" for then, now in zip(before, row[3:])])
    section = f"{HEADING}{INTRODUCTION}\n{format_table([*COLUMNS], cells)}\n"
    if HEADING not in page:
        return f"{page.rstrip()}\n\n{section}" if page else section
    head, _, rest = page.partition(HEADING)
    _, mark, tail = rest.partition("\n## ")
    return head + section + (mark + tail if mark else "")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu_code.step_table", description=__doc__.split("\n")[0])
    parser.add_argument("page", type=Path, nargs="?", help="write the section here instead of printing it")
    page = parser.parse_args(arguments).page
    os.environ["TRITON_INTERPRET"] = "1"  # Triton reads it on import, which the ranks have not done yet
    rows: list[list[str]] = []
    pools = {num: Ranks(num) for num in NUM_RANKS}
    try:
        for case in CASES:
            for num, ranks in pools.items():
                rows += rows_of(case, num, ranks(counts_of, case)[0])
    finally:
        for ranks in pools.values():
            ranks.stop()
    text = with_section("" if page is None else page.read_text(), rows)
    if page is None:
        print(text, end="")
    else:
        page.write_text(text)


if __name__ == "__main__":
    main()
