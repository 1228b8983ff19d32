"""One training epoch by preset: a two-layer GCN, Adam, no dropout, all from the same weights on the same graph."""

import gc
import os
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse import csr_array
from torch import Tensor

from fullgnn.bench.gpu.lookalikes import Lookalike, Nodes
from fullgnn.bench.gpu.random_graph import CSR
from fullgnn.bench.gpu.timing import synchronize
from fullgnn.bench.ours import set_weights
from fullgnn.config import Config, ReorderConfig, RuntimeConfig, TrainConfig, WorkConfig, conf_dir
from fullgnn.dist import World, init_world
from fullgnn.engine import build_model, make_input, make_scheme, replay_for
from fullgnn.engine.fit import Epochs
from fullgnn.engine.graphed import EAGER_EPOCHS
from fullgnn.engine.work import applicable
from fullgnn.errors import UnsupportedError
from fullgnn.graph import Graph, NormalizedAdjacency
from fullgnn.meter import Meter
from fullgnn.nn import set_spmm_order
from fullgnn.partition import Partition
from fullgnn.schemes.base import PreparedGraph

OURS = ("full", "hetu")
"""Choices of ``conf/experiment``."""

NOT_REPLAYED = "full, not replayed"
LATER: dict[str, dict[str, dict[str, Any]]] = {
    NOT_REPLAYED: {"runtime": {"cuda_graph": "never"}},
    "full, A H0 on the host": {"work": {"offload": "always"}},
}
"""``full`` with keys of a run changed, to see what they are worth."""

PYG = {"PyG GCNConv, torch CSR": "csr", "PyG GCNConv, EdgeIndex": "edge_index"}
PRESETS = ("naive", *OURS, *PYG)
"""In the order in which they run."""

WARM_UP = EAGER_EPOCHS + 3  # the capture of a step and the first replays are in it
_LEAST_EPOCHS, _MOST_EPOCHS = 5, 30
_LEARNING_RATE = 0.01

Step = Callable[[], float]
"""One epoch; returns the loss before its update."""

Settings = Callable[[], dict[str, Any]]
"""What a preset turned out to do, asked for after its epochs."""


@dataclass(frozen=True, eq=False)
class Training:
    """What is trained, the same for every preset."""

    csr: CSR  # of A + I
    nodes: Nodes
    num_classes: int
    hidden: int
    cache_dir: str | None = None  # where a kernel that was found to be fastest is remembered

    @property
    def device(self) -> torch.device:
        return self.csr.indptr.device

    def weights(self) -> list[Tensor]:
        """(in, out) of the two layers, on the device; biases start at 0."""
        generator = torch.Generator().manual_seed(0)
        widths = [self.nodes.features.shape[1], self.hidden, self.num_classes]
        drawn = [torch.randn(a, b, generator=generator) * (2 / (a + b)) ** 0.5 for a, b in zip(widths, widths[1:])]
        return [weight.to(self.device) for weight in drawn]

    def scale(self) -> Tensor:
        """(num_nodes,) float32 d^-1/2."""
        return self.csr.indptr.diff().double().rsqrt().float()

    def normalized(self) -> Tensor:
        """(nnz,) float32 entries of D^-1/2 (A + I) D^-1/2."""
        degree, scale = self.csr.indptr.diff().long(), self.csr.indptr.diff().double().rsqrt()
        values = torch.repeat_interleave(scale, degree, output_size=self.csr.nnz)
        return values.mul_(scale[self.csr.indices]).float()


def time_epochs(step: Step, device: torch.device, seconds: float) -> tuple[list[float], list[float]]:
    """Milliseconds of each epoch after the warm-up, and the losses of all of them."""
    losses, times = [step() for _ in range(WARM_UP)], list[float]()
    begin = time.perf_counter()
    while len(times) < _LEAST_EPOCHS or (len(times) < _MOST_EPOCHS and time.perf_counter() - begin < seconds):
        synchronize(device)
        start = time.perf_counter()
        losses.append(step())
        synchronize(device)
        times.append((time.perf_counter() - start) * 1e3)
    return times, losses


def run_preset(preset: str, training: Training, seconds: float) -> dict[str, Any]:
    """Set ``preset`` up, train some epochs and say what they took: an entry of the record.

    Memory counts what a process would hold that runs this preset alone, without what only the others need.
    """
    device = training.device
    before = _start_memory(device)
    begin = time.perf_counter()
    with _made(preset, training) as (step, settings):
        synchronize(device)
        setup_s = time.perf_counter() - begin
        setup_bytes = _peak_memory(device)
        _start_memory(device)
        times, losses = time_epochs(step, device, seconds)
        peak_bytes, found = _peak_memory(device), settings()
    shared = 0 if preset in (*OURS, *LATER) else training.nodes.features.nbytes + training.csr.indices.nbytes
    return {
        "preset": preset,
        "median_ms": statistics.median(times),
        "least_ms": min(times),
        "most_ms": max(times),
        "epochs": len(times),
        "setup_s": setup_s,
        "setup_peak_bytes": setup_bytes and setup_bytes - before + shared,
        "peak_bytes": peak_bytes and peak_bytes - before + shared,
        "losses": losses[: WARM_UP + _LEAST_EPOCHS],
        "settings": found,
    }


def loss_error(losses: list[float], expected: list[float]) -> float:
    """Largest relative difference of two curves."""
    return max(abs(a - b) / abs(b) for a, b in zip(losses, expected))


@contextmanager
def _made(preset: str, training: Training) -> Iterator[tuple[Step, Settings]]:
    if preset == "naive":
        yield naive(training), lambda: {"multiplies": "(A H) W", "adjacency": "torch.sparse_csr, int32, with values"}
    elif preset in PYG:
        yield pyg(training, PYG[preset]), lambda: {"adjacency": PYG[preset], "cached": True}
    else:
        cfg = preset_config(preset, training)
        with _world(cfg.runtime) as world:
            yield ours(cfg, training, world)


# ---- peers -------------------------------------------------------------------------------------------------------


class _Symmetric(torch.autograd.Function):
    """Y = A X for A = A^T: the gradient is the same product, which autograd cannot know."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, adj: Tensor) -> Tensor:
        ctx.adj = adj
        return adj @ x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return ctx.adj @ grad, None


def naive(training: Training) -> Step:
    """(A H) W in both layers, with torch's CSR: a GCN as its formula is read."""
    n = training.csr.num_nodes
    adj = torch.sparse_csr_tensor(
        training.csr.indptr, training.csr.indices, training.normalized(), (n, n), check_invariants=False
    )
    weights = [torch.nn.Parameter(weight) for weight in training.weights()]
    biases = [torch.nn.Parameter(weight.new_zeros(weight.shape[1])) for weight in weights]
    x = training.nodes.features

    def forward() -> Tensor:
        h = torch.addmm(biases[0], adj @ x, weights[0]).relu()
        return torch.addmm(biases[1], _Symmetric.apply(h, adj), weights[1])

    return _trainer([*weights, *biases], forward, training)


def pyg(training: Training, form: str) -> Step:
    """PyG's ``GCNConv`` with its normalisation cached, the adjacency as its guide to speed advises."""
    from torch_geometric.nn import GCNConv

    n = training.csr.num_nodes
    adj: Any
    if form == "csr":
        ones = torch.ones(training.csr.nnz, device=training.device)
        adj = torch.sparse_csr_tensor(training.csr.indptr, training.csr.indices, ones, (n, n), check_invariants=False)
    else:
        from torch_geometric import EdgeIndex

        degree = training.csr.indptr.diff().long()
        row = torch.repeat_interleave(torch.arange(n, device=training.device), degree, output_size=training.csr.nnz)
        pair = torch.stack([training.csr.indices.long(), row])
        adj = EdgeIndex(pair, sparse_size=(n, n), sort_order="col", is_undirected=True).fill_cache_()
    convs: Any = torch.nn.ModuleList(
        GCNConv(*weight.shape, cached=True, add_self_loops=False)
        for weight in training.weights()  # the loops are stored
    ).to(training.device)
    with torch.no_grad():
        for conv, weight in zip(convs, training.weights()):
            conv.lin.weight.copy_(weight.T)

    def forward() -> Tensor:
        return convs[1](convs[0](training.nodes.features, adj).relu(), adj)

    return _trainer(list(convs.parameters()), forward, training)


def _trainer(parameters: list[Tensor], forward: Callable[[], Tensor], training: Training) -> Step:
    """The loop of a GNN script."""
    optimizer = torch.optim.Adam(parameters, lr=_LEARNING_RATE)
    index = training.nodes.train_mask.nonzero().squeeze(1)
    target = training.nodes.labels[index]

    def step() -> float:
        optimizer.zero_grad()
        loss = F.cross_entropy(forward().index_select(0, index), target)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


# ---- ours --------------------------------------------------------------------------------------------------------


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
    model = {
        **_yaml("model", "gcn"),
        "hidden_channels": training.hidden,
        "num_layers": 2,
        "dropout": 0,
        "input_dropout": 0,
    }
    train = {**_yaml("train", "default"), "optimizer": "adam", "lr": _LEARNING_RATE, "weight_decay": 0.0}
    work = {**_yaml("work", "default"), **experiment.get("work", {}), **own.get("work", {})}
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
        partition={},
        kernel=_yaml("kernel", chosen["kernel"]),
        reorder=ReorderConfig(),
        work=WorkConfig(**_known(WorkConfig, work)),
        train=TrainConfig(**_known(TrainConfig, train)),
        runtime=RuntimeConfig(**_known(RuntimeConfig, runtime)),
    )


def ours(cfg: Config, training: Training, world: World) -> tuple[Step, Settings]:
    """What ``engine.set_up`` does, from a graph that is prepared on the device: host work on a hundred million
    entries would take minutes."""
    meter = Meter(world.device)
    scheme = make_scheme(cfg, world, meter)
    model = build_model(cfg, training.nodes.features.shape[1], training.num_classes, world.device)
    work = applicable(cfg.work, model)
    sharded = scheme.shard(_prepared(training, scheme.num_parts, work.fold_normalization), work.loss_rows_only)
    set_spmm_order(model, work.spmm_order)
    sharded, work = make_input(sharded, work, world)
    set_weights(model, training.weights())
    epochs = Epochs(model, sharded, scheme, cfg.train, meter, replay_for(cfg.runtime.cuda_graph, world))
    epoch = 0

    def step() -> float:
        nonlocal epoch
        epoch += 1
        return epochs(epoch).loss.read()

    def settings() -> dict[str, Any]:
        applied = {**asdict(work), "scheme": cfg.scheme["name"]}
        return applied | {"kernel": scheme.kernel_name, "cuda_graph": epochs.outcome}

    return step, settings


def _prepared(training: Training, num_parts: int, fold: bool) -> PreparedGraph:
    """The graph and its normalised adjacency on the host, with nothing computed there."""
    csr, nodes, n = training.csr, training.nodes, training.csr.num_nodes
    indptr, indices = csr.indptr.cpu().numpy(), csr.indices.cpu().numpy()
    data = np.ones(csr.nnz, np.int8) if fold else training.normalized().cpu().numpy()
    matrix = csr_array((data, indices, indptr), shape=(n, n))
    matrix.has_canonical_format = True  # spares scipy a pass over the indices
    scale = training.scale().double().cpu().numpy() if fold else None
    train_mask, nobody = nodes.train_mask.cpu().numpy(), np.zeros(n, bool)
    features, labels = nodes.features.cpu().numpy(), nodes.labels.cpu().numpy()
    # The masks and features are what is read of it: the adjacency is the matrix above.
    graph = Graph(
        np.zeros(n + 1, np.int64), np.empty(0, np.int32), features, labels, train_mask, nobody, nobody,
        num_classes=training.num_classes,
    )  # fmt: skip
    adj = NormalizedAdjacency(matrix, None, fold, scale, scale)
    return PreparedGraph(graph, np.arange(n), adj, Partition.equal(n, num_parts), np.dtype(np.float32))


@contextmanager
def _world(runtime: RuntimeConfig) -> Iterator[World]:
    """A job of this process alone, over the machine's own interface."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ |= {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    for library in ("GLOO", "NCCL"):
        os.environ.setdefault(f"{library}_SOCKET_IFNAME", "lo")
    with init_world(runtime) as world:
        yield world


def _yaml(group: str, name: str) -> dict[str, Any]:
    try:
        import yaml
    except ImportError as error:
        raise UnsupportedError("PyYAML is not installed, and the preset is in a YAML file") from error
    return yaml.safe_load((conf_dir() / group / f"{name}.yaml").read_text())


def _known(schema: Any, values: dict[str, Any]) -> dict[str, Any]:
    return {entry.name: values[entry.name] for entry in fields(schema) if entry.name in values}


# ---- memory ------------------------------------------------------------------------------------------------------


def _start_memory(device: torch.device) -> int:
    """Bytes of tensors that are there; the peak is counted from now on. 0 on a CPU, which does not count."""
    if device.type != "cuda":
        return 0
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)


def _peak_memory(device: torch.device) -> int | None:
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None


def as_training(csr: CSR, nodes: Nodes, shape: Lookalike, cache_dir: str | None = None) -> Training:
    return Training(csr, nodes, shape.num_classes, shape.hidden, cache_dir)
