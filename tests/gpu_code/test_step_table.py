"""The page has the launches, collectives and host waits that steps have now, and steps wait as often as promised."""

import pytest
import torch

from tests.commands import ROOT
from tests.gpu_code.step_counts import CASES, Counts, counts_of
from tests.gpu_code.step_table import HEADING, NUM_RANKS, rows_of, rows_on, with_section
from tests.triton_device import needs_triton

PAGE = ROOT / "docs" / "results" / "gpu.md"
MOST_WAITS = {
    **{f"{model} step": 0 for model in ("GCN", "GAT")},
    **{f"{model} evaluation": 1 for model in ("GCN", "GAT", "sampled SAGE")},
    "sampled SAGE step": 2,
    "SAGE, drawn on the GPU step": 2,
    **{f"{model}, drawn and cached step": 1 for model in ("SAGE", "GCN")},
}
"""How often the host may wait, on any number of ranks."""


@needs_triton
@pytest.mark.skipif(torch.cuda.is_available(), reason="Triton compiles the kernels here")
@pytest.mark.parametrize("ranks", ["gloo"], indirect=True)
@pytest.mark.parametrize("num_ranks", NUM_RANKS)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.sample(24)
def test_the_page_has_the_counts_of_now(ranks, case: str, num_ranks: int) -> None:
    counts_of_parts: dict[str, Counts] = ranks(num_ranks)(counts_of, case)[0]
    for part, counts in counts_of_parts.items():
        assert sum(counts.waits.values()) <= MOST_WAITS.get(f"{case} {part}", 100), counts
        assert counts.kernels > 0 and (counts.collectives > 0) == (num_ranks > 1)
    listed = {key: [cell.rpartition(" → ")[2] for cell in row] for key, row in rows_on(PAGE.read_text()).items()}
    for row in rows_of(case, num_ranks, counts_of_parts):
        assert listed[tuple(row[:3])] == row[3:], "run: python -m tests.gpu_code.step_table docs/results/gpu.md"


def test_the_page_keeps_what_was_before() -> None:
    then, now = (
        [rows_of("GCN", 1, {"step": Counts(23, num, 0, waits)})[0]] for num, waits in ((9, {"cpu": 2}), (7, {}))
    )
    page = with_section(with_section("# Page\n\ntext\n", then) + "\n## Next\n\nmore\n", now)
    assert list(rows_on(page)) == [("GCN", "1", "step")]
    assert rows_on(page)["GCN", "1", "step"] == ["23", "9 → 7", "0", "2 → 0", "2 cpu → -"]
    assert page.startswith(f"# Page\n\ntext\n\n{HEADING}") and page.endswith("\n## Next\n\nmore\n")
    again = with_section(page, then)
    assert rows_on(again)["GCN", "1", "step"] == ["23", "9", "0", "2", "2 cpu"]
