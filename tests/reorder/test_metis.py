import sys

import numpy as np
import pymetis
import pytest
from scipy import sparse

from fullgnn.errors import ConfigError
from fullgnn.partition.kway import MetisError
from fullgnn.reorder import metis


def test_clusters_are_consecutive_and_keep_their_inner_order(planted) -> None:
    perm = metis(planted, 0, cluster_size=50)
    descents = np.count_nonzero(np.diff(perm) < 0)  # ids ascend inside each of the 20 clusters
    assert descents == 19


def test_one_cluster_or_no_edge_needs_no_metis(planted, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    assert np.array_equal(metis(planted, 0, cluster_size=1000), np.arange(1000))
    self_loops = sparse.eye_array(4, format="csr")
    assert np.array_equal(metis(self_loops, 0, cluster_size=1), np.arange(4))


@pytest.mark.parametrize("cause", ["not installed", "raises"])
def test_says_that_pymetis_failed(cause: str, planted, monkeypatch) -> None:
    if cause == "not installed":
        monkeypatch.setitem(sys.modules, "pymetis", None)
    else:
        monkeypatch.setattr(pymetis, "part_graph", lambda *args, **kwargs: 1 / 0)
    kind = "ModuleNotFoundError" if cause == "not installed" else "ZeroDivisionError"
    with pytest.raises(MetisError, match=f"pymetis failed .{kind}.*: reinstall pymetis"):
        metis(planted, 0)


@pytest.mark.parametrize("cluster_size", [0, -3])
def test_refuses_a_cluster_size_below_one(cluster_size: int, planted) -> None:
    with pytest.raises(ConfigError, match=f"cluster_size is {cluster_size}"):
        metis(planted, 0, cluster_size=cluster_size)
