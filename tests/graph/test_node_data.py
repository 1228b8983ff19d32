"""Generated features, labels and splits, for graphs that have none."""

import numpy as np
import pytest

from fullgnn.errors import ConfigError, DataError
from fullgnn.graph.node_data import few_label_split, node_data, normalize_rows, random_split

GROUPS = np.arange(4000) % 8


def make(**changes):
    default = dict(num_features=64, num_classes=4, feature_signal=1.0, label_noise=0.0)
    split = dict(train_fraction=0.5, val_fraction=0.2, seed=0)
    return node_data(GROUPS, **{**default, **split, **changes})


def test_feature_signal_is_the_distance_of_class_means_from_the_origin():
    data = make(feature_signal=3.0)
    np.testing.assert_array_equal(data["labels"], GROUPS % 4)
    centres = np.stack([data["features"][data["labels"] == label].mean(axis=0) for label in range(4)])
    np.testing.assert_allclose(np.linalg.norm(centres, axis=1), 3.0, atol=0.3)  # 1000 nodes leave noise of 0.25
    assert data["features"].dtype == np.float32


def test_label_noise_and_seed():
    changed = (make(label_noise=0.2)["labels"] != GROUPS % 4).mean()
    assert 0.12 < changed < 0.18  # a quarter of the redrawn labels is right by chance
    np.testing.assert_array_equal(make()["features"], make()["features"])
    assert not np.array_equal(make()["features"], make(seed=1)["features"])


def test_random_split_is_disjoint_and_leaves_unlabelled_nodes_out():
    labels = np.where(np.arange(100) < 10, -1, 0)
    masks = random_split(labels, 0.6, 0.2, seed=0)
    assert [int(mask.sum()) for mask in masks.values()] == [54, 18, 18]
    assert not sum(mask.astype(int) for mask in masks.values())[:10].any()
    assert max(sum(mask.astype(int) for mask in masks.values())) == 1


def test_random_split_does_not_depend_on_the_platform():
    train = random_split(np.zeros(12, int), 0.25, 0.25, seed=0)["train_mask"]
    assert np.flatnonzero(train).tolist() == [1, 2, 10]  # recorded once: PCG64 gives the same numbers on every platform


@pytest.mark.parametrize(("train", "val"), [(0, 0.5), (0.8, 0.3), (0.5, -0.1)])
def test_impossible_fractions(train, val):
    with pytest.raises(ConfigError, match="are no split"):
        random_split(np.zeros(10, int), train, val, seed=0)


def test_tiny_graphs_still_train():
    assert random_split(np.zeros(3, int), 0.01, 0.0, seed=0)["train_mask"].sum() == 1


def test_few_label_split():
    labels = np.array([0] * 50 + [1] * 7 + [2] * 30)
    masks = few_label_split(labels, train_per_class=5, num_val=20, seed=0)
    assert np.bincount(labels[masks["train_mask"]]).tolist() == [5, 5, 5]
    assert [int(mask.sum()) for mask in masks.values()] == [15, 20, 52]
    assert (sum(mask.astype(int) for mask in masks.values()) == 1).all()
    other = few_label_split(labels, train_per_class=5, num_val=20, seed=1)
    assert not np.array_equal(masks["train_mask"], other["train_mask"])
    with pytest.raises(ConfigError, match="choose 1 to 7, the smallest class"):
        few_label_split(labels, train_per_class=8, num_val=20, seed=0)
    with pytest.raises(ConfigError, match="choose 0 to 72"):
        few_label_split(labels, train_per_class=5, num_val=73, seed=0)


def test_normalize_rows():
    np.testing.assert_array_equal(normalize_rows(np.float32([[1, 3], [0, 0]])), np.float32([[0.25, 0.75], [0, 0]]))
    with pytest.raises(DataError, match="normalize_features=false"):
        normalize_rows(np.float32([[-1, 0]]))


@pytest.mark.parametrize("changes", [dict(num_features=0), dict(num_classes=0), dict(label_noise=2.0)])
def test_impossible_node_data(changes):
    with pytest.raises(ConfigError):
        make(**changes)
