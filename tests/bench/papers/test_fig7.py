"""Figure 7: the plain GCN is compared with a dense oracle, and fullgnn's GCN with the plain one."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fullgnn.bench.papers.config import Keys, load_target, run
from fullgnn.bench.papers.graphs import case
from fullgnn.bench.papers.hetu import convergence
from fullgnn.bench.papers.result import Result
from fullgnn.bench.papers.trainings import TrainingCurve, run_config
from fullgnn.engine.run import build_model
from tests.oracle import DenseGCN, normalize

EPOCHS = 6
pytestmark = pytest.mark.sample(5, "fig7")  # each target takes seconds, and all work alike
TINY = ("datasets=[reddit-like]", "scale=0.002", "others=[]", "device=cpu", f"epochs={EPOCHS}")


@pytest.fixture(scope="module")
def cfg(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return load_target("fig7", *TINY, f"data_root={tmp_path_factory.mktemp('data')}")


@pytest.fixture(scope="module")
def result(cfg: Keys) -> Result:
    return run("fig7", cfg)


def test_the_plain_gcn_is_the_dense_oracles(cfg: Keys, result: Result) -> None:
    made = case(cfg, "reddit-like")
    graph = made.graph
    model = build_model(run_config(cfg, made.hidden), graph.num_features, graph.num_classes, torch.device("cpu"))
    weights = [w.detach().double().numpy() for w in model.parameters() if w.dim() == 2]
    biases = [np.zeros(w.shape[1]) for w in weights]
    adj = normalize(graph.adjacency(np.float64).toarray(), "sym")
    oracle = DenseGCN(adj, graph.features, graph.labels, graph.train_mask, weights, biases, dropout=0, seed=0)
    losses = oracle.train(EPOCHS, "adam", lr=0.01, weight_decay=0)
    plain = result.details["Reddit"]["PyTorch"]
    assert np.allclose(plain["loss"], losses, rtol=0, atol=1e-5)
    logits = oracle.forward(None)[0][graph.test_mask]
    accuracy = (logits.argmax(axis=1) == graph.labels[graph.test_mask]).mean()
    assert plain["accuracy"][-1] == pytest.approx(accuracy, abs=1.5 / graph.test_mask.sum())
    assert losses[-1] < losses[0] - 0.1  # the oracle learns, so agreement with its losses is not trivial


def test_ours_has_the_same_curves_on_one_and_two_processes(result: Result) -> None:
    assert result.columns == ("PyTorch", "ours p=1", "ours p=2")
    plain, *ours = (result.details["Reddit"][column] for column in result.columns)
    for own in ours:
        assert len(own["loss"]) == len(own["accuracy"]) == len(own["seconds"]) == EPOCHS
        assert np.allclose(own["loss"], plain["loss"], rtol=0, atol=1e-5)
        assert np.allclose(own["accuracy"], plain["accuracy"], rtol=0, atol=0.02)
    row = next(row for row in result.rows if row.labels[1] == "largest difference of the loss")
    assert row.cells["ours p=2"].ours == max(abs(a - b) for a, b in zip(ours[1]["loss"], plain["loss"]))
    assert "are the same" in result.notes[0]


def test_speedups_are_over_pytorch_and_the_largest_have_the_papers_beside_them(result: Result) -> None:
    first = result.rows[0]
    assert first.labels == ("Reddit", convergence.TIME)
    seconds = {name: cell.ours for name, cell in first.cells.items()}
    assert all(isinstance(value, float) and value > 0 for value in seconds.values())
    over_plain, over_single = result.rows[-2:]
    assert over_plain.cells["ours p=2"].ours == seconds["PyTorch"] / seconds["ours p=2"]  # type: ignore[operator]
    assert over_plain.cells["ours p=2"].paper == 10.9
    assert over_plain.cells["ours p=1"].paper is None
    assert set(over_single.cells) == {"ours p=2"}
    assert (over_single.cells["ours p=2"].paper) == 6.51


def test_curves_that_differ_are_called_so(cfg: Keys) -> None:
    plain, other = (TrainingCurve([0.5, 0.6], [0.1, 0.1], 0.0, [2.0, last]) for last in (1.0, 1.01))
    compared = Result((), ())
    convergence.compare(compared, "G", {convergence.PLAIN: plain, "ours p=1": other}, cfg.tolerance)
    note = convergence.losses_note(compared.rows, cfg.tolerance)
    assert note.startswith("The curves of the loss DIFFER: they differ by 1.0e-02")
    assert compared.rows[0].cells["ours p=1"].ours is None  # ``other`` never reaches the last loss of ``plain``


def test_time_to_a_loss_ends_with_the_first_epoch_that_has_it() -> None:
    curve = TrainingCurve([], [0.5, 0.25, 0.125, 1.0], loss=[3.0, 2.0, 2.5, 1.0])
    assert curve.after_first == [0.0, 0.25, 0.375, 1.375]  # the first step warms up
    assert [curve.seconds_to_loss(loss) for loss in (2.2, 1.0, 0.9)] == [0.25, 1.375, None]


def test_processes_without_a_device_are_left_out(tmp_path: Path) -> None:
    assert convergence.processes(load_target("fig7", "nproc=1", "device=cpu", f"data_root={tmp_path}")) == [1]
    on_gpu = load_target("fig7", "device=cpu")
    on_gpu.device = "cuda"
    assert convergence.processes(on_gpu) == [p for p in (1, 2) if p <= torch.cuda.device_count()]
