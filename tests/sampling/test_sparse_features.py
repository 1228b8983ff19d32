"""Sampled training whose batches have the rows of sparse features as sparse matrices."""

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from fullgnn.distributed import World, world_of_one
from fullgnn.kernels.dense.sparse_rows import SparseRows
from fullgnn.sampling.setup import set_up_sampled
from fullgnn.telemetry.meter import Meter
from tests.cases import dense_graph
from tests.sampling.blocks import CPU
from tests.sampling.training import case, run

FANOUTS = "sampler.fanouts=[4,3]"
MODELS = {
    "sage": ["model=sage", FANOUTS],
    "sage, residual": ["model=sage", "model.residual=true", "model.norm=layer", FANOUTS],
    "gcn, layers": ["model=gcn", "sampler=layer", "sampler.sizes=[6,9]"],
    "gat, clusters": ["model=gat", "sampler=cluster", "sampler.num_clusters=7"],
    "gatv2": ["model=gatv2", FANOUTS],
    "gin": ["model=gin", "model.input_dropout=0", FANOUTS],
    "mlp": ["model=mlp", "sampler.fanouts=[]"],
}
DENSE = {
    "maximum": ["model=sage", "model.aggregation=max", FANOUTS],
    "cache": ["model=sage", "cache=degree", FANOUTS],
    "codec": ["model=sage", "codec=bfloat16", FANOUTS],
    "precompute": ["model=sage", "model.input_dropout=0", "loader.precompute=true", "sampler.fanouts=[3]"],
    "mapped": ["model=sage", "loader.map_features=true", FANOUTS],
}


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with sparse features."""
    path = tmp_path_factory.mktemp("words") / "words.npz"
    dense_graph("words").graph().save(path)
    return path


def settings(path: Path, folder: Path, sparse: bool, *keys: str) -> Any:
    choice = f"optimizations.sparse_features={str(sparse).lower()}"
    fixed = "runtime.dtype=float64", "loader.batch_size=3", "runtime.device=cpu", "train.checkpoint_every=1"
    return case(path, folder, *fixed, choice, *keys)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", MODELS)
def test_training_is_that_with_dense_features(tmp_path: Path, words: Path, name: str) -> None:
    results = []
    for sparse in (True, False):
        cfg = settings(words, tmp_path / str(sparse), sparse, *MODELS[name])
        with world_of_one(cfg.runtime) as world:
            results.append(run(world, cfg))
    np.testing.assert_allclose(results[0]["loss"], results[1]["loss"], rtol=1e-12)
    torch.testing.assert_close(results[0]["model"], results[1]["model"], rtol=1e-10, atol=1e-10)


@pytest.mark.sample(4)
@pytest.mark.parametrize("keys", [[], ["loader.num_workers=2"]], ids=["here", "workers"])
def test_ranks_and_workers(ranks, tmp_path: Path, words: Path, keys: list[str]) -> None:
    result, dense = (
        ranks(2)(run, settings(words, tmp_path / str(sparse), sparse, *MODELS["sage"], *keys))[0]
        for sparse in (True, False)
    )
    np.testing.assert_allclose(result["loss"], dense["loss"], rtol=1e-12)
    sampling = result["record"]["sampling"]
    assert sampling["input_rows"] == dense["record"]["sampling"]["input_rows"]
    features = csr_array(dense_graph("words").features)
    assert sampling["fetched_bytes"] == sampling["input_rows"] * (features.nnz * 12 // features.shape[0])


def first_input(world: World, cfg: Any) -> Any:
    with closing(set_up_sampled(cfg, world, Meter(CPU)).loader) as loader:
        batch = next(loader.epoch(1))
    return batch.x, batch.blocks[0].source_id


@pytest.mark.parametrize("name", [*MODELS, *DENSE])
def test_which_batches_have_sparse_rows(name: str, words: Path, tmp_path: Path) -> None:
    cfg = settings(words, tmp_path, True, *{**MODELS, **DENSE}[name])
    with world_of_one(cfg.runtime) as world:
        x, ids = first_input(world, cfg)
    assert isinstance(x, SparseRows) == (name in MODELS)
    if isinstance(x, SparseRows):
        np.testing.assert_array_equal(x.to_dense().numpy(), dense_graph("words").features[ids.numpy()])
