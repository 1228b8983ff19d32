"""Generated features and labels, for graphs that have none."""

import numpy as np
import pytest

from fullgnn.errors import ConfigError, DataError
from fullgnn.graph.node_data import node_data, normalize_rows

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


def test_normalize_rows():
    np.testing.assert_array_equal(normalize_rows(np.float32([[1, 3], [0, 0]])), np.float32([[0.25, 0.75], [0, 0]]))
    with pytest.raises(DataError, match="normalize_features=false"):
        normalize_rows(np.float32([[-1, 0]]))


@pytest.mark.parametrize("changes", [dict(num_features=0), dict(num_classes=0), dict(label_noise=2.0)])
def test_impossible_node_data(changes):
    with pytest.raises(ConfigError):
        make(**changes)
