"""The targets of accuracy of sparse features on tiny graphs, against plain NumPy."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from fullgnn.bench.papers.config import cases_of, load_target, run
from fullgnn.bench.papers.page import csv_text, draw, table_text
from fullgnn.bench.papers.result import Bars, Curves, Result, number
from fullgnn.bench.papers.sparsification import accuracy, training
from fullgnn.bench.papers.sparsification.accuracy import TOO_EASY, outputs, paired, similarity
from fullgnn.bench.papers.sparsification.training import FULL, AccuracyKeys, CodecSetting, KnownTraining, TrainingJob
from fullgnn.bench.papers.trainings import mean_curve
from fullgnn.codecs import Features
from fullgnn.codecs.topk import TopK
from fullgnn.config.overrides import quote
from fullgnn.errors import ConfigError
from fullgnn.graph import Graph
from fullgnn.models import SAGE

pytestmark = pytest.mark.sample(3)  # its tests take seconds, or compile kernels

TARGETS = ("sp_codecs", "sp_mlp", "sp_table2", "sp_table3", "sp_table4", "sp_fig5", "sp_fig6")


def quoted(*overrides: str) -> str:
    """A list of overrides, as an argument takes it."""
    return f"[{','.join(map(quote, overrides))}]"


GRAPH = ("scale=0.002", "degree_scale=0.01", "num_features=40", "num_classes=4", "feature_signal=4")
OVERRIDES = quoted("dataset=reddit-like", *(f"dataset.{key}" for key in GRAPH))
TINY = ["device=cpu", "threads=1", "datasets=[reddit]", f"data.reddit.overrides={OVERRIDES}"]
TINY += ["max_epochs=4", "sampled_max_epochs=2", "seeds=[0,1]"]


def target(name: str, *own: str) -> AccuracyKeys:
    return load_target(name, *TINY, *own)


def result(name: str, *own: str) -> Result:
    return run(name, target(name, *own))


def job_of(cfg: AccuracyKeys, model: str = "sage") -> TrainingJob:
    return TrainingJob(cfg, training.graph_case(cfg, "reddit"), model)


def topk(*keys: str) -> CodecSetting:
    return CodecSetting("topk", "topk", 16, ("codec=topk", "codec.k=5", *keys))


def coded(features: np.ndarray, k: int) -> np.ndarray:
    """What the codec topk makes of ``features``."""
    codec = TopK(k)
    codec.learn(Features(features, "float32"))
    return codec.decode(torch.from_numpy(codec.encode(features)), torch.float32).numpy()


@pytest.mark.parametrize("seed", range(3))
def test_a_loss_is_the_mean_of_pairs(seed: int) -> None:
    full, kept = np.random.default_rng(seed).normal(80, 3, (2, 7))
    loss = full - kept
    assert paired(full.tolist(), kept.tolist()) == pytest.approx((np.mean(loss), np.std(loss, ddof=1) / np.sqrt(7)))
    assert paired(full.tolist(), (full - 2).tolist()) == pytest.approx((2, 0), abs=1e-12)  # unpaired, it is above 1
    assert paired([80.0], [79.0]) == (1, None)
    with pytest.raises(ValueError, match="zip"):
        paired([80.0, 81.0], [79.0])


def test_similarity_is_the_mean_cosine() -> None:
    full, kept = np.random.default_rng(0).normal(size=(2, 9, 5)).astype(np.float32)
    full[3], kept[4] = 0, 0  # without a direction
    pairs = [(full[i], kept[i]) for i in range(9) if i not in (3, 4)]
    wanted = [before @ after / (np.linalg.norm(before) * np.linalg.norm(after)) for before, after in pairs]
    assert similarity(full, kept) == pytest.approx(np.mean(wanted), rel=1e-5)
    assert similarity(kept, 3 * kept) == pytest.approx(1)


def test_a_projection_keeps_what_the_first_singular_vectors_keep() -> None:
    random = np.random.default_rng(0)
    words = (random.random((60, 8)) @ random.random((8, 30)) + 1e-3 * random.random((60, 30))).astype(np.float32)
    projection = training.projected(words, 8, seed=0)
    assert projection.dtype == np.float32 and projection.shape == (60, 8)
    assert np.mean(np.square(projection)) == pytest.approx(1, rel=1e-5)
    left, values, _ = np.linalg.svd(words, full_matrices=False)
    exact = (left * values)[:, :8]
    exact /= np.sqrt(np.mean(np.square(exact)))
    np.testing.assert_allclose(projection @ projection.T, exact @ exact.T, atol=1e-3)
    spread = np.linalg.norm(projection, axis=0)
    assert (spread[:-1] > spread[1:]).all() and spread[0] > 2 * spread[-1]  # not whitened
    np.testing.assert_array_equal(projection, training.projected(words, 8, seed=0))
    with pytest.raises(ConfigError, match=r"columns=31 is more than 30, what \(60, 30\) features hold"):
        training.projected(words, 31, seed=0)


def test_words_of_a_file_are_projected(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    words = random.poisson(0.5, (50, 20)).astype(np.float32)
    adj = csr_array((random.random((50, 50)) < 0.1).astype(np.float32))
    path = tmp_path / "words.npz"
    Graph.from_scipy(adj, features=words, labels=random.integers(0, 3, 50)).save(path)
    overrides = quoted("dataset=npz", f"dataset.path={quote(str(path))}")
    keys = [f"data.computers.overrides={overrides}", "data.computers.columns=6"]
    cfg = load_target("sp_codecs", *TINY[:2], "datasets=[computers]", *keys)
    case = training.graph_case(cfg, "computers")
    np.testing.assert_array_equal(case.graph.features, training.projected(words, 6, seed=0))
    assert case.real and case.graph.is_symmetric and case.title == "Computers"


def test_splits_have_their_sizes_and_differ_by_seed() -> None:
    splits = [job_of(target("sp_codecs")).graph(seed) for seed in (0, 1)]
    for split in splits:
        assert [int(mask.sum()) for mask in (split.train_mask, split.val_mask, split.test_mask)] == [280, 93, 93]
        assert (split.train_mask.astype(int) + split.val_mask + split.test_mask == 1).all()
    assert (splits[0].train_mask != splits[1].train_mask).any()


@pytest.mark.parametrize(
    ("columns", "ratio", "k"), [(602, 50, 8), (768, 64, 8), (768, 8, 64), (128, 16, 16), (602, 64, 6), (500, 128, 4)]
)
def test_topk_comes_nearest_to_the_ratio(columns: int, ratio: int, k: int) -> None:
    assert training.nearest_k(columns, ratio) == k
    rows = [TopK(k + step).encode(np.zeros((1, columns), np.float32)).nbytes for step in (0, 1, -1)]
    distances = [abs(math.log(4 * columns / (num_bytes * ratio))) for num_bytes in rows if num_bytes]
    assert distances[0] == min(distances)


def test_a_codec_is_a_row_of_keys() -> None:
    wrong = target("sp_codecs", f"codecs.topk.keys={quoted('codec=topk', 'codec.k=1000')}")
    with pytest.raises(ConfigError, match="codec.k=1000 is out of range"):
        run("sp_codecs", wrong)  # before it trains
    cfg = target("sp_codecs", f"codecs.pca.keys={quoted('codec=bfloat16', 'codec.x={dimensions}')}")
    assert training.codec_keys(cfg.codecs["pca"], 16, 602) == ["codec=bfloat16", "codec.x=38"]
    assert training.codec_keys(cfg.codecs["pca8"], 64, 602) == ["codec=pca", "codec.bits=8", "codec.dimensions=38"]
    cfg = target("sp_codecs", "ratios=[2,16,128]", "chosen_codecs=[topk,bfloat16]")
    labels = [(codec.label, codec.keys) for codec in job_of(cfg).codecs]
    assert [label for label, _ in labels] == ["topk 16 x", "topk 128 x", "bfloat16 2 x"]
    assert labels[0][1] == ("codec=topk", "codec.k=5") and labels[2][1] == ("codec=bfloat16",)


def test_pairs_differ_in_the_codec_alone() -> None:
    full, own = (job_of(target("sp_codecs")).overrides(codec, 3) for codec in (FULL, topk()))
    assert [key for key in own if key not in full] == [*topk().keys] and "seed=3" in full


def test_losses_of_every_codec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accuracies = {"none": [80.0, 90.0], "topk": [79.0, 87.0], "bfloat16": [80.0, 90.0]}

    def known(job: TrainingJob, codec: CodecSetting, seed: int) -> KnownTraining:
        return KnownTraining(accuracies[codec.name][seed], 1, [50.0], 0.5)

    monkeypatch.setattr(TrainingJob, "train", known)
    keys = "chosen_codecs=[topk,bfloat16]", "chosen_models=[sage,mlp]", "ratios=[2,16]"
    table = result("sp_codecs", *keys, "aims=[{graph:reddit,model:sage,ratio:16,loss:1}]")
    assert [row.labels[1:] for row in table.rows] == [
        (model, label) for model in ("GraphSAGE", "MLP") for label in ("full", "topk 16 x", "bfloat16 2 x")
    ]
    full, topk, bfloat16 = (row.cells for row in table.rows[:3])
    assert full["accuracy"].ours == 85 and "loss" not in full and full["bytes of a node"].ours == 160
    assert (topk["loss"].ours, topk["standard error"].ours) == (2, pytest.approx(1))
    assert (topk["bytes of a node"].ours, topk["ratio"].ours) == (10, 16)
    assert topk["learnt"].ours == pytest.approx((4 * 10 + 8) / 466)  # a codebook, and the number of columns
    assert (bfloat16["loss"].ours, bfloat16["ratio"].ours, bfloat16["learnt"].ours) == (0, 2, 0)
    assert table.notes[0] == (
        "Reddit, GraphSAGE: near 16 x topk loses least, 2.00 points, standard error 1.00, beyond the aim of 1."
    )
    assert table.notes[1] == "Reddit, MLP: near 16 x topk loses least, 2.00 points, standard error 1.00."
    (panel,) = table.panels
    assert isinstance(panel, Bars) and (panel.title, panel.groups) == ("Reddit", ["GraphSAGE", "MLP"])
    assert [(bars.name, bars.values) for bars in panel.series] == [("topk 16 x", [2, 2]), ("bfloat16 2 x", [0, 0])]
    draw(table.panels, "title", tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000
    assert "topk 16 x" in table_text(table) and "points" in csv_text(table)
    easy = result("sp_codecs", *keys, "ceiling=85")
    assert easy.rows[1].cells["loss"].ours == TOO_EASY and easy.rows[1].cells["standard error"].ours is None
    assert easy.notes[0].startswith("Reddit, GraphSAGE: with full features the accuracy is 85.0 %.")
    paper = result("sp_mlp", "ratios=[16]").rows
    assert [row.cells["loss"].paper for row in paper if "loss" in row.cells] == ["under 1", "6 to 11"]


def test_figures_have_the_papers_losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a dashed curve, or as bars where no codec has several ratios."""
    accuracies = {FULL.label: [80.0, 90.0], "topk 16 x": [79.0, 87.0], "topk 64 x": [75.0, 88.0]}
    accuracies["topk 50 x"] = accuracies["topk 16 x"]

    def known(job: TrainingJob, codec: CodecSetting, seed: int) -> KnownTraining:
        more = codec is not FULL and job.model.title == "GAT"
        return KnownTraining(accuracies[codec.label][seed] - more, 1, [50.0], 0.5)

    monkeypatch.setattr(TrainingJob, "train", known)
    (panel,) = result("sp_table4", "ratios=[16,64]", "datasets=[reddit]").panels
    assert isinstance(panel, Curves) and panel.title == "Reddit, GraphSAGE"
    ours, paper = panel.curves
    assert (ours.name, ours.x, ours.y, ours.dashed) == ("topk", [2, 10], [3.5, 2], False)
    assert ours.error == pytest.approx([1.5, 1])
    assert (paper.name, paper.x, paper.y, paper.dashed, paper.error) == ("topk, paper", [2, 10], [0.2, 0.1], True, [])
    (bars,) = panels = result("sp_table3", "ratios=[50]", "chosen_models=[sage-sampled,gat-sampled]").panels
    assert isinstance(bars, Bars) and (bars.title, bars.groups) == ("Reddit", ["GraphSAGE", "GAT"])
    (series,) = bars.series
    assert (series.name, series.values, series.paper) == ("topk 50 x", [2, 3], [0.4, 0.3])
    assert series.error == pytest.approx([1, 1])
    draw(panels, "title", tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000


@pytest.mark.parametrize("model", ["sage", "sage-sampled", "cluster-gcn"])
def test_trainings_read_what_the_codec_keeps(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "_KNOWN", {})
    cfg = target("sp_codecs")
    cfg.models["cluster-gcn"].keys += ["sampler.num_clusters=4", "sampler.group_size=2"]
    job = job_of(cfg, model)
    full, kept = job.train(FULL, 0), job.train(topk(), 0)
    assert len(full.curve) == (4 if model == "sage" else 2)
    assert 0 < full.accuracy <= 100 and full.epoch_s > 0 and full.best_epoch == 1 + int(np.argmax(full.curve))
    assert full.curve != kept.curve
    assert job.train(FULL, 0) is full  # known


def test_trainings_are_kept_for_later_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A training is found again by the commit and by the features that are read, whichever codec has encoded them."""

    def train(codec: CodecSetting, commit: str | None = "0123") -> KnownTraining:
        monkeypatch.setattr(training, "_KNOWN", {})
        monkeypatch.setattr(training, "_commit", lambda: commit)
        return job.train(codec, 0)

    job = job_of(target("sp_codecs", "max_epochs=2", f"cache_dir={tmp_path}"))
    kept = train(topk())
    with monkeypatch.context() as none_is_trained:
        none_is_trained.setattr(TrainingJob, "fit", None)
        assert train(topk()) == kept and train(topk("codec.sample_nodes=70000")) == kept  # all nodes, too
    assert train(FULL) != kept and len(list((tmp_path / "trained").iterdir())) == 2
    for commit in ("4567", "4567-dirty", None):
        again = train(topk(), commit)
        assert (again.accuracy, again.curve) == (kept.accuracy, kept.curve)
    assert len(list((tmp_path / "trained").iterdir())) == 3


def test_table4_samples_and_has_the_paper_s_numbers() -> None:
    full, kept = (row.cells for row in result("sp_table4", "seeds=[0]", "ratios=[16]", "sampled_max_epochs=1").rows)
    assert (full["accuracy"].paper, kept["accuracy"].paper, kept["loss"].paper) == (68.4, 68.3, 0.1)
    assert kept["loss"].ours == pytest.approx(full["accuracy"].ours - kept["accuracy"].ours)  # type: ignore[operator]
    assert kept["standard error"].ours is None and kept["ratio"].ours == 16


def test_outputs_of_layers_with_the_first_weights() -> None:
    """Against dense products: relu(H W_root + D^-1 A H W + b), with the weights of the same seed."""
    job = job_of(target("sp_table2"), "sage3")
    graph, rows = job.graph(0), outputs(job, FULL, 0, None)
    assert [each.shape[1] for each in rows] == [40, 128, 128, 4]
    np.testing.assert_array_equal(rows[0], graph.features)
    model = SAGE(40, 4, hidden_channels=128, num_layers=3, seed=0)
    adj = torch.tensor(graph.adjacency(np.float32).toarray())
    adj /= adj.sum(1, keepdim=True).clamp(min=1)
    h = torch.tensor(graph.features)
    for depth, layer in enumerate(model.layers):
        conv: Any = layer.conv
        neighbors = conv.neighbors
        h = h @ conv.root.weight + adj @ h @ neighbors.linear.weight + neighbors.bias
        h = h if depth == 2 else h.relu()
        np.testing.assert_allclose(rows[depth + 1], h.detach().numpy(), atol=1e-4)


def test_table2_compares_every_layer() -> None:
    table = result("sp_table2", "seeds=[0]", "ratios=[8,64]", "max_epochs=3")
    assert [row.labels[1:] for row in table.rows] == [
        ("GraphSAGE", f"topk {ratio} x", weights) for weights in ("first", "full's", "own") for ratio in (8, 64)
    ]
    assert list(table.columns) == ["ratio", "input", "layer 1", "layer 2", "layer 3", "same prediction"]
    fine, coarse = (row.cells for row in table.rows[:2])
    assert fine["input"].ours > coarse["input"].ours > 0  # type: ignore[operator]
    graph = training.graph_case(target("sp_table2"), "reddit").graph
    assert coarse["input"].ours == pytest.approx(similarity(graph.features, coded(graph.features, 8)), rel=1e-5)
    panel = table.panels[0]
    assert isinstance(panel, Bars)
    assert panel.series[0].values == [number(fine[name].ours) for name in panel.groups] and len(panel.groups) == 4


def test_gaussian_features_give_the_paper_s_similarities() -> None:
    """About 0.959, 0.845, 0.702 and 0.562 at 8, 16, 32 and 64 x."""
    features = np.random.default_rng(0).standard_normal((400, 768)).astype(np.float32)
    for k, wanted in ((64, 0.959), (32, 0.845), (16, 0.702), (8, 0.562)):
        assert similarity(features, coded(features, k)) == pytest.approx(wanted, abs=0.004)


def test_fig6_has_a_curve_for_each_way(monkeypatch: pytest.MonkeyPatch) -> None:
    curves = {"none": [[50.0, 80.0, 90.0], [52.0, 90.0, 88.0]], "topk": [[40.0, 70.0, 89.5], [44.0, 89.5, 60.0]]}

    def trained(job: TrainingJob, codec: CodecSetting, seed: int) -> KnownTraining:
        return KnownTraining(80.0, 1, curves[codec.name][seed], 0.5)

    monkeypatch.setattr(TrainingJob, "train", trained)
    figure = result("sp_fig6", "ratios=[50]")
    full, topk = (row.cells for row in figure.rows)
    assert (full["best accuracy"].ours, topk["best accuracy"].ours) == (90, 89.5)
    assert (full["epochs"].ours, topk["epochs"].ours, full["all epochs"].ours) == (2.5, 2.5, 3)
    assert figure.panels[0].curves[1].y == [42, 79.75, 74.75]  # type: ignore[union-attr]
    assert mean_curve("a", [[1.0, 2.0], [3.0]]).y == [2]


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_says_what_it_has(name: str) -> None:
    cfg = load_target(name)
    assert cases_of(name) is accuracy.CASES and cfg.case in accuracy.CASES
    assert set(cfg.chosen) <= set(cfg.data) and cfg.title and len(cfg.notes) > 2
    training.check_split(cfg)
    known = {kept for codec in cfg.codecs.values() for kept in codec.at}
    assert set(cfg.ratios) <= known


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("case=fig99", "case=fig99 is not known: choose one of losses, similarity, curves"),
        ("seeds=[]", r"seeds=\[\] leaves nothing to do: give at least one"),
        ("ratios=[0]", "ratios=0 is out of range: it must be at least 1"),
        ("chosen_codecs=[zip]", "chosen_codecs=zip is not known: choose one of topk"),
        ("chosen_models=[transformer]", "chosen_models=transformer is not known: choose one of sage, gcn"),
        ("val_fraction=0.4", "train_fraction=0.6 and val_fraction=0.4 are out of range"),
    ],
)
def test_keys_out_of_range_are_one_line(key: str, line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        result("sp_codecs", key)
