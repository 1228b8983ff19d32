"""Graphs of PyTorch Geometric and DGL whose masks have a split a column: ``dataset.split`` of a run chooses one."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

import fullgnn
from fullgnn import api
from fullgnn.api import train_graph
from fullgnn.errors import FullGNNError
from fullgnn.graph import Graph, load_dataset
from fullgnn.graph.convert import as_graph
from fullgnn.report.inspection import inspection
from tests.graph.dgl_graph import DGLGraph

NUM_NODES, NUM_SPLITS = 12, 3
NODE = torch.arange(NUM_NODES)
RING = torch.stack([NODE, (NODE + 1) % NUM_NODES])
PART = np.stack([np.random.default_rng(k).permutation(NUM_NODES) % 3 for k in range(NUM_SPLITS)], axis=1)
"""(num_nodes, num_splits): 0, 1 or 2, the part of the split that a node is in."""
MASKS = {name: torch.from_numpy(PART == part) for part, name in enumerate(("train_mask", "val_mask", "test_mask"))}


class Ring(DGLGraph):
    def edges(self):
        return RING[0], RING[1]

    def num_nodes(self):
        return NUM_NODES


def pyg(**changes):
    return SimpleNamespace(**(dict(edge_index=RING, x=torch.eye(NUM_NODES), y=NODE % 2, **MASKS) | changes))


def dgl(**changes):
    return Ring(dict(feat=torch.eye(NUM_NODES), label=NODE % 2, **MASKS) | changes)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    """The graphs that ``train_graph`` hands to ranks, as they read them."""
    graphs: list[Graph] = []
    monkeypatch.setattr(api, "start", lambda cfg, *_: graphs.append(load_dataset(cfg.dataset)))
    return graphs


def parts_of(graph: Graph) -> list[int]:
    masks = np.stack([graph.train_mask, graph.val_mask, graph.test_mask])
    assert (masks.sum(axis=0) == 1).all()
    return masks.argmax(axis=0).tolist()


@pytest.mark.parametrize("of_library", [pyg, dgl])
def test_the_column_of_dataset_split_is_used(of_library, started: list[Graph]) -> None:
    train_graph(of_library(), dataset={"split": 2})
    assert parts_of(started[0]) == PART[:, 2].tolist()
    for split in range(NUM_SPLITS):
        assert parts_of(as_graph(of_library(), split)) == PART[:, split].tolist()
    one_column = {name: mask[:, :1] for name, mask in MASKS.items()}
    for split in (None, 0):
        assert parts_of(as_graph(of_library(**one_column), split)) == PART[:, 0].tolist()
    shared = {name: mask & ~MASKS["test_mask"][:, 2:] for name, mask in MASKS.items()}
    shared["test_mask"] = MASKS["test_mask"][:, 2]  # as in WikiCS: one test part for all splits
    graph = as_graph(of_library(**shared), 1)
    np.testing.assert_array_equal(graph.test_mask, PART[:, 2] == 2)
    np.testing.assert_array_equal(graph.train_mask, (PART[:, 1] == 0) & (PART[:, 2] != 2))
    assert Graph.from_dgl(dgl(), split=2).val_mask.tolist() == (PART[:, 2] == 1).tolist()


@pytest.mark.parametrize("of_library", [pyg, dgl])
def test_a_method_takes_the_place_of_all_columns(of_library, started: list[Graph]) -> None:
    train_graph(of_library(), "dataset.split=kfold", "dataset.fold=1", "dataset.num_folds=3")
    expected = Graph.from_edge_index(RING, num_nodes=NUM_NODES, labels=NODE % 2).split("kfold", num_folds=3, fold=1)
    assert parts_of(started[0]) == parts_of(expected)


@pytest.mark.sample(2)
@pytest.mark.parametrize("of_library", [pyg, dgl])
@pytest.mark.parametrize(
    ("changes", "settings", "message"),
    [
        ({}, {}, r"train_mask has 3 columns, a split each: choose one of them, as in .* or dataset.split=0"),
        ({}, {"dataset.split": 3}, "split=3 is out of range: train_mask has the splits 0 to 2"),
        ({}, {"dataset.split": "publik"}, "dataset.split=publik is not known"),
        ({"val_mask": MASKS["val_mask"].T}, {"dataset.split": 0}, "val_mask has shape .*: pass the transpose"),
        (
            {name: mask[:, 0] for name, mask in MASKS.items()},
            {"dataset.split": 0},
            "the masks have one split: leave it",
        ),
        (
            dict.fromkeys(MASKS),
            {"dataset.split": 1},
            "dataset.split=1 chooses a column of masks, and there are no masks",
        ),
    ],
)
def test_what_chooses_no_column_is_one_line(of_library, changes, settings, message, started: list[Graph]) -> None:
    with pytest.raises(FullGNNError, match=message) as refused:
        train_graph(of_library(**changes), settings)
    assert "\n" not in str(refused.value) and not started


def test_a_graph_has_one_split(started: list[Graph]) -> None:
    graph = Graph.from_pyg(pyg(), split=1)
    with pytest.raises(FullGNNError, match="dataset.split=1 chooses a column of masks, and the masks have one split"):
        train_graph(graph, "dataset.split=1")


def test_a_run_on_a_column_equals_that_of_the_graph_with_it(tmp_path: Path) -> None:
    settings = ["train.epochs=3", "runtime.device=cpu"]
    chosen = train_graph(pyg(), *settings, "dataset.split=1", f"run_dir={tmp_path}/chosen")
    given = train_graph(Graph.from_pyg(pyg(), split=1), *settings, f"run_dir={tmp_path}/given")
    assert (chosen.final_loss, chosen.test_accuracy) == (
        given.final_loss,
        given.test_accuracy,
    )
    kept = OmegaConf.to_container(OmegaConf.load(tmp_path / "chosen" / "config.yaml"))["dataset"]
    assert kept["split"] == 1 and parts_of(load_dataset(kept)) == PART[:, 1].tolist()


def test_an_inspection_looks_at_the_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "layouts_of", lambda graph, cfg: ((), "not asked for"))
    facts = fullgnn.inspect(pyg(), "dataset.split=2", "runtime.device=cpu")
    assert facts.labels.classes["train"] == tuple(np.bincount(NODE[PART[:, 2] == 0] % 2, minlength=2))
