"""Our training, without Hydra and without work on the host that a graph on the device does not need."""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from fullgnn.bench.gpu.training import LEARNING_RATE, Settings, Start, Step, Training
from fullgnn.bench.ours import set_weights
from fullgnn.config import Config, OptimizationConfig, ReorderConfig, RuntimeConfig, TrainConfig, conf_dir
from fullgnn.distributed import World, init_world
from fullgnn.engine import build_model, make_input, make_scheme, replay_for
from fullgnn.engine.optimizations import applicable
from fullgnn.engine.train_step import TrainStep
from fullgnn.errors import UnsupportedError
from fullgnn.graph import Graph, NormalizedAdjacency
from fullgnn.nn import set_spmm_order
from fullgnn.partition import Partition
from fullgnn.schemes.base import PreparedGraph
from fullgnn.telemetry.meter import Meter

OURS = ("full", "hetu")
"""Choices of ``conf/experiment``."""

NOT_REPLAYED = "full, not replayed"
LATER: dict[str, dict[str, dict[str, Any]]] = {
    NOT_REPLAYED: {"runtime": {"cuda_graph": "never"}},
    "full, A H0 on the host": {"optimizations": {"offload": "always"}},
}
"""``full`` with keys of a run changed, to see what they are worth."""


def preset_config(preset: str, training: Training) -> Config:
    """The configuration of ``conf/experiment/<preset>.yaml`` on one process.

    Raises:
        UnsupportedError: PyYAML is not installed.
    """
    experiment, own = _yaml("experiment", preset.split(",")[0]), LATER.get(preset, {})
    chosen = {"scheme": "1d", "kernel": "auto"}
    for entry in experiment.get("defaults", ()):
        for key, choice in entry.items() if isinstance(entry, dict) else ():
            chosen[key.removeprefix("override /")] = choice
    scheme = {**_yaml("scheme", chosen["scheme"]), **experiment.get("scheme", {}), "replication": 1}
    model = {**_yaml("model", "gcn"), "hidden_channels": training.hidden, "num_layers": 2}
    model |= {"dropout": 0, "input_dropout": 0}
    train = {**_yaml("train", "default"), "optimizer": "adam", "lr": LEARNING_RATE, "weight_decay": 0.0}
    optimizations = {
        **_yaml("optimizations", "default"),
        **experiment.get("optimizations", {}),
        **own.get("optimizations", {}),
    }
    runtime = {**_yaml("runtime", "default"), "nproc": 1, "device": training.device.type, "backend": "gloo"}
    runtime |= {"cache_dir": training.cache_dir, **own.get("runtime", {})}
    return Config(
        run_dir="",
        seed=0,
        normalization="sym",
        self_loops=True,
        dataset={},
        model=model,
        scheme=scheme,
        partition=_yaml("partition", "contiguous"),
        kernel=_yaml("kernel", chosen["kernel"]),
        reorder=ReorderConfig(**_known(ReorderConfig, _yaml("reorder", "base") | _yaml("reorder", "none"))),
        optimizations=OptimizationConfig(**_known(OptimizationConfig, optimizations)),
        train=TrainConfig(**_known(TrainConfig, train)),
        runtime=RuntimeConfig(**_known(RuntimeConfig, runtime)),
    )


def ours(cfg: Config, training: Training, world: World) -> Start:
    """What ``engine.set_up`` does, from a graph that is prepared on the device: host work on a hundred million
    entries would take minutes. The graph is cut and A H0 computed once for all rates of dropout."""
    meter = Meter(world.device)
    scheme = make_scheme(cfg, world, meter)
    in_channels = training.nodes.features.shape[1]
    optimizations = applicable(cfg.optimizations, build_model(cfg, in_channels, training.num_classes, world.device))
    sharded = scheme.shard(
        _prepared(training, scheme.num_parts, optimizations.fold_normalization), optimizations.loss_rows_only
    )
    sharded, optimizations = make_input(sharded, optimizations, world)

    def start(dropout: float) -> tuple[Step, Settings]:
        own = replace(cfg, model={**cfg.model, "dropout": dropout})
        model = build_model(own, in_channels, training.num_classes, world.device)
        set_spmm_order(model, optimizations.spmm_order)
        set_weights(model, training.weights())
        epochs = TrainStep(model, sharded, scheme, cfg.train, meter, replay_for(cfg.runtime.cuda_graph, world))
        epoch = 0

        def step() -> Callable[[], float]:
            nonlocal epoch
            epoch += 1
            return epochs(epoch).loss.read

        def settings() -> dict[str, Any]:
            applied = {**asdict(optimizations), "scheme": cfg.scheme["name"]}
            return applied | {"kernel": scheme.kernel_name, "cuda_graph": epochs.outcome}

        return step, settings

    return start


def _prepared(training: Training, num_parts: int, fold: bool) -> PreparedGraph:
    """The graph and its normalised adjacency on the host, with nothing computed there."""
    csr, n = training.csr, training.csr.num_nodes
    indptr, indices = csr.indptr.cpu().numpy(), csr.indices.cpu().numpy()
    data = np.ones(csr.nnz, np.int8) if fold else training.normalized().cpu().numpy()
    matrix = csr_array((data, indices, indptr), shape=(n, n))
    matrix.has_canonical_format = True  # spares scipy a pass over the indices
    scale = training.scale().double().cpu().numpy() if fold else None
    # The masks and features are what is read of it: the adjacency is the matrix above.
    graph = host_graph(training, np.zeros(n + 1, np.int64), np.empty(0, np.int32))
    adj = NormalizedAdjacency(matrix, None, fold, scale, scale)
    return PreparedGraph(graph, np.arange(n), adj, Partition.equal(n, num_parts), np.dtype(np.float32))


def host_graph(training: Training, indptr: np.ndarray, indices: np.ndarray) -> Graph:
    """The nodes of a training with some adjacency, on the host."""
    nodes, nobody = training.nodes, np.zeros(training.csr.num_nodes, bool)
    features, labels = nodes.features.cpu().numpy(), nodes.labels.cpu().numpy()
    train_mask, num_classes = nodes.train_mask.cpu().numpy(), training.num_classes
    return Graph(indptr, indices, features, labels, train_mask, nobody, nobody, num_classes=num_classes)


@contextmanager
def alone(runtime: RuntimeConfig) -> Iterator[World]:
    """A job of this process alone, over the machine's own interface."""
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    use_loopback()
    with init_world(runtime) as world:
        yield world


def use_loopback() -> None:
    """Have collectives use the machine's own interface, unless the environment names another."""
    for library in ("GLOO", "NCCL"):
        os.environ.setdefault(f"{library}_SOCKET_IFNAME", "lo")


def free_port() -> int:
    """A port that nobody listens to."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _yaml(group: str, name: str) -> dict[str, Any]:
    try:
        import yaml
    except ImportError as error:
        raise UnsupportedError("PyYAML is not installed, and the preset is in a YAML file") from error
    return yaml.safe_load((conf_dir() / group / f"{name}.yaml").read_text())


def _known(schema: Any, values: dict[str, Any]) -> dict[str, Any]:
    return {entry.name: values[entry.name] for entry in fields(schema) if entry.name in values}
