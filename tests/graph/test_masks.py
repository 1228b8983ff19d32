"""Masks as people hold them: booleans, 0 and 1, one column, node ids, or a split a column."""

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fullgnn.errors import DataError
from fullgnn.graph import Graph
from fullgnn.graph.checks import read_mask

MASK = np.array([True, False, False, True, False, False])
FORMS: dict[str, Any] = {
    "booleans": MASK,
    "a list": MASK.tolist(),
    "a column": MASK[:, None],
    "uint8": MASK.astype(np.uint8),
    "uint8 column": MASK.astype(np.uint8)[:, None],
    "integers": MASK.astype(int),
    "floats": MASK.astype(float),
    "ids": [0, 3],
    "ids in another order": np.array([3, 0], np.int32),
    "ids of a column": np.array([[3], [0]]),
    "unsigned ids": np.array([0, 3], np.uint64),
    "a tensor": torch.from_numpy(MASK),
    "a tensor of ids": torch.tensor([0, 3]),
    "a tensor of bytes": torch.from_numpy(MASK).to(torch.uint8)[:, None],
}


@pytest.mark.parametrize("form", FORMS)
def test_a_mask_is_read_in_every_form(form: str) -> None:
    value = FORMS[form]
    before = copy.deepcopy(value)
    mask = read_mask(value, "train_mask", len(MASK))
    assert mask.dtype == bool and np.array_equal(mask, MASK) and np.array_equal(value, before)


def test_what_may_be_no_node_or_all_of_them() -> None:
    for nothing in (None, [], np.zeros(6, bool), np.empty(0, int), torch.empty(0, dtype=torch.int64), np.zeros(6, int)):
        assert not read_mask(nothing, "val_mask", 6).any()
    assert read_mask(np.arange(6)[::-1], "val_mask", 6).all()  # a permutation: length n, but not of 0 and 1
    assert read_mask(np.ones(6, int), "val_mask", 6).all()
    assert read_mask([1], "val_mask", 1).all() and not read_mask([0, 0], "val_mask", 2).any()
    assert read_mask([1], "val_mask", 2).tolist() == [False, True]  # an id


REFUSED = {
    "two nodes": ([0, 1], 2, r"holds \[0, 1\] for 2 nodes, which may be a mask or node ids: pass booleans"),
    "two nodes turned": (np.array([1, 0]), 2, "may be a mask or node ids"),
    "one node": (np.array([0]), 1, "may be a mask or node ids"),
    "id too large": ([0, 6], 6, "node id 6 in train_mask is out of range: the graph has nodes 0 to 5"),
    "id below 0": ([-1, 2], 6, "node id -1 in train_mask is out of range"),
    "an id twice": ([2, 2], 6, "holds 2 integers, no mask of the 6 nodes, and as node ids some of them repeat"),
    "neither": ([0, 1, 2, 0, 0, 0], 6, "no mask of the 6 nodes"),
    "a mask of another graph": ([0, 1, 0, 1, 0], 6, "holds 5 integers, no mask of the 6 nodes"),
    "booleans short": ([True], 6, r"has shape \(1,\) but the graph has 6 nodes"),
    "floats short": ([0.5], 6, r"has shape \(1,\) but the graph has 6 nodes"),
    "floats": ([0.5] * 6, 6, "holds values other than 0 and 1"),
    "NaN": ([float("nan")] + [0.0] * 5, 6, "holds values other than 0 and 1"),
    "columns": (np.zeros((6, 3), bool), 6, r"shape \(6, 3\), a split a column: choose one, as in train_mask\[:, 0\]"),
    "texts": (["a"] * 6, 6, "has dtype <U1"),
    "three dims": (np.zeros((6, 1, 1), bool), 6, "has shape"),
    "a number": (3, 6, r"has shape \(\)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_mask_is_one_line(case: str) -> None:
    value, num_nodes, message = REFUSED[case]
    with pytest.raises(DataError, match=message) as refused:
        read_mask(value, "train_mask", num_nodes)
    assert "\n" not in str(refused.value)


def data(**masks: Any) -> SimpleNamespace:
    return SimpleNamespace(
        edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]), x=torch.ones(6, 2), y=torch.arange(6) % 2, **masks
    )


def test_pyg_s_masks_are_read() -> None:
    column = Graph.from_pyg(data(train_mask=torch.tensor(MASK)[:, None], val_mask=torch.tensor([1, 4])))
    assert np.array_equal(column.train_mask, MASK) and np.flatnonzero(column.val_mask).tolist() == [1, 4]
    with pytest.raises(DataError, match="train_mask and test_mask overlap"):
        Graph.from_pyg(data(train_mask=torch.tensor([0, 1]), test_mask=torch.tensor([1, 2])))


def test_a_split_of_several_is_chosen() -> None:
    rng = np.random.default_rng(0)
    part = rng.integers(0, 3, (6, 4))
    masks = {name: torch.from_numpy(part == k) for k, name in enumerate(("train_mask", "val_mask", "test_mask"))}
    for split in range(4):
        chosen = Graph.from_pyg(data(**masks), split=split)
        assert np.array_equal(
            np.stack([chosen.train_mask, chosen.val_mask, chosen.test_mask]), part[:, split] == [[0], [1], [2]]
        )
    shared = {**masks, "test_mask": torch.zeros(6, dtype=torch.bool)}  # as WikiCS has it
    assert np.array_equal(Graph.from_pyg(data(**shared), split=2).train_mask, part[:, 2] == 0)
    for split, message in (
        (None, r"train_mask has 4 columns, a split each: choose one of them, as in Graph.from_pyg\(data, split=0\)"),
        (4, "split=4 is out of range: train_mask has the splits 0 to 3"),
    ):
        with pytest.raises(DataError, match=message):
            Graph.from_pyg(data(**masks), split=split)
    with pytest.raises(DataError, match="the masks have one split: leave it out"):
        Graph.from_pyg(data(train_mask=torch.tensor(MASK)), split=0)
    with pytest.raises(DataError, match="there are no masks: leave it out"):
        Graph.from_pyg(data(), split=0)
