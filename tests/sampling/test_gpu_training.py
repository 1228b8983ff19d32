"""Sampled training that draws, caches or fetches on a GPU; in Triton's interpreter, what needs no GPU."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("hydra")

from fullgnn.distributed import world_of_one
from fullgnn.errors import FullGNNError
from tests.cases import dense_graph
from tests.sampling.training import MODELS, case, run, same
from tests.triton_device import needs_triton

pytestmark = needs_triton


@pytest.fixture(autouse=True)
def triton(triton_on_cpu: None) -> None:
    """Without a GPU, Triton's interpreter runs the kernels."""


@pytest.mark.sample(10)
@pytest.mark.parametrize("cache", ["none", "all"])
@pytest.mark.parametrize("kind", ["directed", "weighted"])
@pytest.mark.parametrize("model", ["sage", "gcn", "gat"])
def test_training_is_that_of_the_host(
    tmp_path: Path,
    graph_files: dict[str, Path],
    kind: str,
    model: str,
    cache: str,
) -> None:
    results = []
    for on_gpu in ("true", "false"):
        keys = [*MODELS[model], "train.epochs=2", f"loader.sample_on_gpu={on_gpu}", "model.dropout=0", f"cache={cache}"]
        cfg = case(graph_files[kind], tmp_path / on_gpu, *keys)
        with world_of_one(cfg.runtime) as world:
            results.append(run(world, cfg))
    same(*results, 1e-9)


WAYS = {
    "workers": ["loader.num_workers=2"],
    "pieces": ["loader.num_workers=1", "loader.slot_megabytes=0.001", "loader.num_slots=1"],
    "cache": ["loader.num_workers=1", "cache=degree", "cache.megabytes=0.002"],
    "drawn and cached": ["loader.sample_on_gpu=true", "cache=degree", "cache.megabytes=0.002"],
}


@pytest.fixture
def wide_graph(tmp_path: Path) -> Path:
    """A directed graph with rows of 400 bytes: the smallest slot holds two, and a cache of 0.002 MB holds five."""
    graph = dense_graph("directed").graph()
    assert graph.features is not None
    replace(graph, features=np.tile(graph.features, 10)).save(tmp_path / "wide.npz")
    return tmp_path / "wide.npz"


@pytest.mark.gpu
@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_a_batch_to_a_gpu_is_the_same(tmp_path: Path, wide_graph: Path, way: str) -> None:
    results = []
    for name, keys in (("plain", []), (way, WAYS[way])):
        cfg = case(wide_graph, tmp_path / name, *MODELS["sage"], *keys)
        with world_of_one(cfg.runtime) as world:
            assert world.device.type == "cuda"
            results.append(run(world, cfg))
    same(*results, 1e-12)


def test_what_cannot_sample_on_a_gpu_says_so(tmp_path: Path, graph_files: dict[str, Path]) -> None:
    lines = {
        "sampler=cluster sampler.num_clusters=5": "sampler=cluster runs on the host: leave out loader.sample_on_gpu",
        "loader.num_workers=1": "workers draw on the host: set loader.num_workers=0, or loader.sample_on_gpu=false",
    }
    for key, line in lines.items():
        cfg = case(graph_files["directed"], tmp_path / "run", "loader.sample_on_gpu=true", *key.split())
        with pytest.raises(FullGNNError, match=line), world_of_one(cfg.runtime) as world:
            run(world, cfg)
