"""Time to accuracy: when a training arrives, by hand-made epochs; and the whole target on tiny graphs."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from fullgnn import reproduce as command
from fullgnn.bench.papers import time_to_accuracy as target
from fullgnn.bench.papers.config import load_target, run
from fullgnn.bench.papers.result import Result, TableRow, number
from fullgnn.bench.papers.time_to_accuracy import TrainedRuns, add_rows, compared, targets
from fullgnn.bench.papers.trainings import Evaluation, TrainingCurve
from fullgnn.errors import ConfigError


def training(*accuracies: float | None, ms: float = 500.0) -> TrainingCurve:
    return TrainingCurve(accuracies, [ms / 1e3] * len(accuracies), 0.25, epoch_ms=ms)


def rows_of(trained: TrainedRuns) -> list[TableRow]:
    """The rows with the target 0.8 for every seed."""
    result = Result((), (), units=target.COLUMNS)
    add_rows(result, "G", trained, [0.8] * len(next(iter(trained.values()))))
    return result.rows


def test_seconds_are_those_of_all_epochs_up_to_the_evaluation() -> None:
    curve = training(None, 0.5, None, None, 0.8, 0.7)
    evaluations = [Evaluation(2, 1.0, 1.0, 0.5), Evaluation(5, 2.5, 1.5, 0.8), Evaluation(6, 3.0, 0.5, 0.7)]
    assert curve.evaluations == evaluations
    assert curve.reaching(0.8) == curve.reaching(0.51) == evaluations[1]  # not the last one, which also has it


@pytest.mark.parametrize(
    ("accuracies", "goal", "epoch"),
    [
        ((0.9, 0.1), 0.9, 1),  # at the first epoch, exactly
        ((0.1, 0.2), 0.3, None),  # never
        ((None, 0.5), 0.3, 2),  # a graph without validation nodes has null; so has a diverged epoch in the file
        ((math.nan, math.nan, 0.4), 0.4, 3),
        ((math.inf, 0.4), 0.4, 2),
        ((None, math.nan), 0.0, None),
        ((), 0.0, None),
    ],
)
def test_the_first_evaluation_with_the_target_counts(
    accuracies: tuple[Any, ...], goal: float, epoch: int | None
) -> None:
    arrival = training(*accuracies).reaching(goal)
    assert (None if arrival is None else arrival.epoch) == epoch
    assert arrival is None or arrival.seconds == 0.5 * arrival.epoch


def test_the_target_of_a_seed_is_a_fraction_of_the_best_of_all_ways() -> None:
    trained = {
        ("full", 1): [training(0.5, 0.9, 0.8), training(0.6, 0.6)],
        ("sampled", 1): [training(0.7), training(0.4, 0.7)],
    }
    assert targets(trained, 0.99) == pytest.approx([0.99 * 0.9, 0.99 * 0.7])


def test_a_row_has_medians_and_says_what_is_not_reached() -> None:
    trained = {
        ("full", 1): [training(0.5, 0.8), training(0.8), training(0.5, 0.6)],
        ("sampled", 1): [training(0.8, ms=100.0), training(0.1, 0.8, ms=100.0), training(0.8, ms=100.0)],
        ("slow", 1): [training(0.5), training(0.8), training(0.7)],
    }
    full, sampled, slow = (row.cells for row in rows_of(trained))
    assert full[target.TIME].ours == 1.0 and full[target.FIRST].ours == 0.5
    assert full[target.LAST].ours == "not reached" and full["epochs"].ours == 2
    assert full[target.SPEEDUP].ours == 1.0 and sampled[target.SPEEDUP].ours == pytest.approx(10)
    assert sampled[target.TIME].ours == pytest.approx(0.1) and sampled[target.LAST].ours == pytest.approx(0.2)
    assert sampled["resolution"].ours == pytest.approx(0.1)
    assert slow[target.TIME].ours == "not reached, best 80.0 %" and slow[target.SPEEDUP].ours is None
    assert slow[target.FIRST].ours == 0.5
    assert full["best accuracy"].ours == pytest.approx(100 * (0.8 + 0.8 + 0.6) / 3)
    assert full["spread"].ours == pytest.approx(20)


@pytest.mark.parametrize(
    ("full", "sampled", "said"),
    [
        ([1.0, 1.2], [0.5, 0.6], "sampled reaches the target 2.00 times as soon as full, with every seed"),
        (
            [0.5, 0.6],
            [0.5, 1.2],
            "full reaches the target 1.55 times as soon as sampled, but the times of the seeds overlap",
        ),
        ([9.0, 9.0], [0.5, 0.6], "sampled is the soonest, and full does not reach the target"),
        ([0.5, 0.6], [9.0, 9.0], "full is the soonest, and no other way reaches the target"),
        ([9.0, 9.0], [9.0, 9.0], "no way reaches the target with most of the seeds"),
    ],
)
def test_a_sentence_says_which_way_is_sooner(full: list[float], sampled: list[float], said: str) -> None:
    """9 seconds stand for a training that never arrives."""

    def trainings(seconds: list[float]) -> list[TrainingCurve]:
        return [training(0.1 if second == 9 else 0.8, ms=1e3 * second) for second in seconds]

    trained = {("full", 2): trainings(full), ("sampled", 2): trainings(sampled)}
    assert compared(rows_of(trained)) == [f"G, p=2: {said}."]


TINY = [
    "device=cpu",
    "threads=1",
    "seeds=[0,1]",
    "processes=[1,2]",
    "chosen_runs=[PubMed]",
    "runs.PubMed.dataset=['dataset=karate']",
    "runs.PubMed.shared=['model=gcn','model.hidden_channels=8','model.input_dropout=0']",
    "runs.PubMed.ways.full=['train.epochs=6','train.eval_every=2']",
    "runs.PubMed.ways.sampled=['train.epochs=3','loader.batch_size=8','sampler.fanouts=[3,2]']",
    "~runs.PubMed.ways.precompute",
]


@pytest.mark.sample(6)
def test_the_command_leaves_a_page_with_a_panel_for_each_graph(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    command.run_target("time_to_accuracy", load_target("time_to_accuracy", *TINY), TINY, tmp_path)
    record = json.loads((tmp_path / "record.json").read_text())
    assert [row["labels"] for row in record["rows"]] == [
        ["PubMed", f"p={p}", way] for p in (1, 2) for way in ("full", "sampled")
    ]
    details = record["details"]["PubMed"]
    of_ways = [seeds for way, seeds in details.items() if way != "targets"]
    best = [max(each["accuracy"] for seeds in of_ways for each in seeds[seed]["evaluations"]) for seed in range(2)]
    assert details["targets"] == pytest.approx([0.99 * accuracy for accuracy in best])
    assert [evaluation["epoch"] for evaluation in details["full p=2"][1]["evaluations"]] == [2, 4, 6]
    assert [evaluation["epoch"] for evaluation in details["sampled p=1"][0]["evaluations"]] == [1, 2, 3]
    for alone, both in zip(details["sampled p=1"], details["sampled p=2"], strict=True):  # the same batches
        accuracies = [[evaluation["accuracy"] for evaluation in run["evaluations"]] for run in (alone, both)]
        assert accuracies[0] == pytest.approx(accuracies[1], abs=0.05)
    ways = [f"{way}, p={p}" for p in (1, 2) for way in ("full", "sampled")]
    assert [curve["name"] for curve in record["panels"][0]["curves"]] == [*ways, "target"]
    page = (tmp_path / "time_to_accuracy.md").read_text()
    assert "![Time to accuracy" in page and "| PubMed |" in page and "sampled: `train.epochs=3" in page
    assert (tmp_path / "time_to_accuracy.png").stat().st_size > 1000


def test_a_graph_without_validation_nodes_is_refused() -> None:
    cfg = load_target("time_to_accuracy", *TINY, "runs.PubMed.dataset=['dataset=karate','dataset.num_val=0']")
    line = "runs.PubMed has no val_accuracy: choose a graph whose validation nodes have one class each"
    with pytest.raises(ConfigError, match=line):
        run("time_to_accuracy", cfg)


def test_ranks_without_a_gpu_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = load_target("time_to_accuracy", *TINY)
    assert target.processes(cfg) == [1, 2]
    cfg.device = "cuda"
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    assert target.processes(cfg) == [1]
    cfg.processes = [2]
    with pytest.raises(ConfigError, match=r"processes=\[2\] are more ranks than GPUs here: give a smaller number"):
        run("time_to_accuracy", cfg)


def test_a_generated_graph_has_the_sizes_of_the_one_it_imitates() -> None:
    cfg = load_target("time_to_accuracy", *TINY)
    generated = cfg.runs["Reddit-like"]
    generated.dataset = ["dataset=reddit-like", "dataset.scale=0.002", "dataset.degree_scale=0.1"]
    made, real = (target.graph_of(cfg, name) for name in ("Reddit-like", "PubMed"))
    assert (made.real, made.dataset, made.scale, made.full.num_nodes) == (False, "reddit-like", 0.002, 232965)
    assert made.graph.num_nodes == 466
    assert (real.real, real.scale, real.full) == (True, 1.0, real.size)
    assert number(made.facts(cfg.torch_device)["density_ratio"]) == pytest.approx(50, rel=0.02)
