"""Training, evaluation and prediction with encoded features: as with the same features decoded before.

The oracle is a run without a codec on a graph whose features were encoded and decoded beforehand.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("hydra")

from fullgnn.codecs import Features, encoded, load
from fullgnn.codecs.topk import TopK
from fullgnn.config.compose import compose, load_config
from fullgnn.distributed import World
from fullgnn.errors import DataError
from fullgnn.graph import Graph
from fullgnn.storage.cache import Cache
from fullgnn.storage.record import read_epochs, read_record
from fullgnn.train import run_on
from fullgnn.train_minibatch import run_on as run_sampled_on

COLUMNS, K = 300, 5
CODEC = ["codec=topk", f"codec.k={K}", "codec.sample_nodes=20"]


def graph(seed: int = 0) -> Graph:
    random = np.random.default_rng(seed)
    edges = random.integers(0, 60, (2, 400))
    labels = random.integers(0, 4, 60)
    features = random.normal(size=(60, COLUMNS)) + labels[:, None]
    masks = np.arange(60) % 3
    return Graph.from_edge_index(
        edges, num_nodes=60, features=features.astype(np.float32), labels=labels,
        train_mask=masks == 0, val_mask=masks == 1, test_mask=masks == 2,
    )  # fmt: skip


def decoded_graph(whole: Graph, state: dict[str, np.ndarray] | None = None) -> Graph:
    """The graph whose features are what the codec keeps of them."""
    codec = TopK(K, sample_nodes=20)
    rows, state = encoded(codec, Cache(None), {}, Features(whole.features, "float64"), state)
    load(codec, state)
    return replace(whole, features=codec.decode(torch.from_numpy(rows), torch.float64).numpy())


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    whole = graph()
    whole.save(tmp_path / "whole.npz")
    decoded_graph(whole).save(tmp_path / "decoded.npz")
    return {name: tmp_path / f"{name}.npz" for name in ("whole", "decoded")}


def config(file: Path, folder: Path, *keys: str, name: str = "config"):
    common = [
        "train.epochs=4",
        "train.eval_every=1",
        "runtime.device=cpu",
        "runtime.dtype=float64",
        "train.checkpoint_every=4",
    ]
    return load_config(compose("dataset=npz", f"dataset.path={file}", f"run_dir={folder}", *common, *keys, name=name))


def run(world: World, cfg, sampled: bool):
    (run_sampled_on if sampled else run_on)(world, cfg)
    return [] if world.rank else read_epochs(Path(cfg.run_dir))[0]


BATCHES = ["sampler.fanouts=[3,2]", "loader.batch_size=8"]
WAYS = {
    "gcn": (False, ["model=gcn"]),
    "gat": (False, ["model=gat"]),
    "directed sage": (False, ["model=sage", "partition=random", "seed=3"]),
    "cached": (False, ["model=gcn", "runtime.cache_dir=CACHE", "reorder=degree"]),
    "sampled": (True, BATCHES),
    "mapped": (
        True,
        ["sampler.fanouts=[3,2]", "loader.batch_size=8", "loader.map_features=true", "runtime.cache_dir=CACHE"],
    ),
    "workers": (
        True,
        [
            "sampler.fanouts=[3,2]",
            "loader.batch_size=8",
            "loader.num_workers=1",
            "cache=degree",
            "cache.megabytes=0.0002",
        ],
    ),
}


@pytest.mark.sample(10)
@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("way", WAYS)
def test_curves_are_those_of_the_decoded_features(
    ranks, files: dict[str, Path], tmp_path: Path, size: int, way: str
) -> None:
    sampled, keys = WAYS[way]
    name = "minibatch" if sampled else "config"
    curves = {}
    for again in [False, *[True] * ("runtime.cache_dir=CACHE" in keys)]:  # which finds what the first run has kept
        for kind, more in (("whole", CODEC), ("decoded", [])):
            folder = tmp_path / f"{kind}_{again}"
            given = [key.replace("CACHE", str(tmp_path / "cache")) for key in keys]
            cfg = config(files[kind], folder, *given, *more, name=name)
            curves[kind, again] = ranks(size)(run, cfg, sampled)[0]
            codec = read_record(folder).codec
            if kind == "decoded":
                assert codec is None
            else:
                assert codec is not None and codec["row_bytes"] == 4 * K and codec["ratio"] == COLUMNS * 8 / (4 * K)
    for epochs in curves.values():
        assert len(epochs) == 4
        for epoch, expected in zip(epochs, curves["decoded", False]):
            for key in ("loss", "train_accuracy", "val_accuracy", "test_accuracy"):
                assert epoch[key] == pytest.approx(expected[key], rel=1e-12), (way, key)


def test_a_prepared_folder_holds_codes(files: dict[str, Path], tmp_path: Path) -> None:
    from fullgnn.partition.folder import open_folder
    from fullgnn.prepare.source import Preparation

    sizes = {}
    for kind, more in (("plain", []), ("codes", CODEC)):
        cfg = config(files["whole"], tmp_path / "run", *more)
        path, _ = Preparation(cfg, 2).in_folder(tmp_path / kind)
        sizes[kind] = sum(file.stat().st_size for file in path.glob("part_*/features.npy"))
        part = open_folder(path).part(1)
        assert (part.codec_state is None) == (kind == "plain")
    assert sizes["plain"] > 20 * sizes["codes"]
    file = tmp_path / "codes" / "part_1" / "codec_state.npy"
    content = bytearray(file.read_bytes())
    content[-40] ^= 1
    file.write_bytes(content)
    with pytest.raises(DataError, match="the prepared graph is damaged: [^\n]*codec_state[^\n]*$"):
        assert open_folder(tmp_path / "codes").part(1).codec_state is None


@pytest.mark.sample(2)
@pytest.mark.parametrize("sampled", [False, True])
def test_predictions_decode_with_what_the_training_has_learnt(
    files: dict[str, Path], tmp_path: Path, sampled: bool
) -> None:
    from fullgnn import predict
    from fullgnn.distributed import world_of_one

    name, keys = ("minibatch", ["loader.batch_size=8"]) if sampled else ("config", [])
    other = graph(seed=5)
    other.save(tmp_path / "other.npz")
    outputs = {}
    for kind, more in (("whole", CODEC), ("decoded", [])):
        cfg = config(files[kind], tmp_path / kind, *keys, *more, name=name)
        with world_of_one(cfg.runtime) as world:
            run(world, cfg, sampled)
        learnt = encoded(TopK(K, sample_nodes=20), Cache(None), {}, Features(graph().features, "float64"))[1]
        decoded_graph(other, learnt).save(tmp_path / "other_decoded.npz")
        for target, path in (("same", None), ("other", "other" if kind == "whole" else "other_decoded")):
            out = tmp_path / f"{kind}_{target}"
            given = [] if path is None else ["dataset=npz", f"dataset.path={tmp_path / path}.npz"]
            request = predict.load_request(
                [f"checkpoint={tmp_path / kind}", f"out={out}", "runtime.device=cpu", "runtime.nproc=1", *given]
            )
            with world_of_one(request.runtime) as world:
                predict.predict_on(world, request)
            outputs[kind, target] = np.load(out / "outputs.npy")
    for target in ("same", "other"):
        np.testing.assert_allclose(outputs["whole", target], outputs["decoded", target], rtol=1e-9)
