"""Metrics of scores on a GPU, against scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn import metrics as reference

from fullgnn.kernels.support import gpu
from fullgnn.tasks import score_areas
from fullgnn.tasks.metrics import AVERAGE_PRECISION, OF_SCORES, ROC_AUC, UNKNOWN, _of_columns
from tests.gpu_code.host_waits import HostWaits
from tests.triton_device import DEVICE

REFERENCE = {ROC_AUC: reference.roc_auc_score, AVERAGE_PRECISION: reference.average_precision_score}


def columns(num_nodes: int = 300) -> np.ndarray:
    """(num_nodes, C, 2): random scores, many ties, ties alone, unknown nodes, few positive ones, and only one kind."""
    rng = np.random.default_rng(0)
    targets = rng.integers(0, 2, (num_nodes, 7))
    scores = rng.standard_normal((num_nodes, 7))
    scores[:, 1] = rng.integers(-2, 3, num_nodes)
    scores[:, 2] = 0.5
    targets[rng.random(num_nodes) < 0.4, 3] = UNKNOWN
    targets[:, 4] = np.arange(num_nodes) == 17
    targets[:, 5], targets[:, 6] = 0, 1
    return np.stack([scores, targets], axis=2)


def expected(name: str, given: np.ndarray) -> list[float]:
    areas = []
    for scores, targets in given.transpose(1, 2, 0):
        known = targets != UNKNOWN
        kinds = set(targets[known])
        has = 1 in kinds and (0 in kinds or name == AVERAGE_PRECISION)
        areas.append(REFERENCE[name](targets[known], scores[known]) if has else np.nan)
    return areas


@pytest.mark.parametrize("at_once", [1 << 24, 650])
@pytest.mark.parametrize("name", OF_SCORES)
def test_a_gpu_computes_the_metrics_without_a_wait(monkeypatch: pytest.MonkeyPatch, name: str, at_once: int) -> None:
    """Also a few columns at a time, of one node and of none."""
    monkeypatch.setattr(gpu, "AS_ON_GPU", True)
    monkeypatch.setattr(score_areas, "ELEMENTS_AT_ONCE", at_once)
    for num_nodes in (300, 1):
        given = columns(300)[18 - num_nodes : 18] if num_nodes == 1 else columns(300)
        on_device = torch.from_numpy(given).to(DEVICE)
        with HostWaits([on_device]) as waits:
            areas = _of_columns(name, on_device)
        assert waits.counts == {}
        np.testing.assert_allclose(areas.cpu(), expected(name, given), rtol=0, atol=1e-12)
    assert _of_columns(name, on_device[:0]).isnan().all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", OF_SCORES)
def test_scores_that_are_not_finite_are_told(monkeypatch: pytest.MonkeyPatch, name: str, value: float) -> None:
    """Only scores of known nodes count."""
    given = columns()
    given[5, 0, 0], given[np.flatnonzero(given[:, 3, 1] == UNKNOWN)[0], 3, 0] = value, value
    host = _of_columns(name, torch.from_numpy(given))
    monkeypatch.setattr(gpu, "AS_ON_GPU", True)
    areas = _of_columns(name, torch.from_numpy(given))
    assert host[0] == areas[0] == float("inf") and host[3].isfinite()
    np.testing.assert_allclose(areas, host, rtol=0, atol=1e-12)
