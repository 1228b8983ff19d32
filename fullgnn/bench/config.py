"""The benchmark's command line: its schema and the models that it knows here, its values in ``conf/bench.yaml``."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from typing import Optional

from fullgnn.config import Config, MinibatchConfig, conf_dir
from fullgnn.config.compose import compose, load_config
from fullgnn.config.keys import check_choices, check_minima, choices, load_keys
from fullgnn.config.overrides import quote
from fullgnn.errors import ConfigError
from fullgnn.graph.lookalikes import LOOKALIKES, TOYS
from fullgnn.graph.workloads import WORKLOADS
from fullgnn.sampling.neighbors import check_fanouts

OPERATIONS = {
    "spmm": "primitives.run_spmm",
    "epoch": "epoch.run",
    "collectives": "primitives.run_collectives",
    "reorder": "primitives.run_orders",
    "sampling": "sampling.run_sampling",
    "minibatch": "sampling.run_minibatch",
    "rates": "gpu.products.run_rates",
    "products": "gpu.products.run",
    "sweep": "gpu.sweep.run",
    "hits": "gpu.hits.run",
    "checks": "gpu.checks.run",
    "drill": "gpu.checks.run_drill",
}
"""Operation -> the function (cfg, world) -> ``Results`` that measures it, in this package."""

ON_MADE = ("products", "sweep", "hits")
"""Operations whose graph is made on the device."""

OF_JOBS = ("epoch", "collectives", "minibatch")
"""Operations that may run on several ranks."""

DEFAULT_PRESET = "default"
"""The preset that is ``conf/config.yaml`` alone, without an experiment."""

BATCH_SIZE, HIDDEN = 1024, 128
"""Where nothing else is said: training nodes of a batch of one process, and hidden channels."""

LR = 0.01
TASK = ("optimizer=adam", f"optimizer.lr={LR}", "optimizer.weight_decay=0")
"""Keys of a run that all methods share."""

# The models that ``op=epoch`` trains: their keys in a run of ours, and the shapes of their weights.

HEADS = 8
"""Attention heads of the hidden layer, side by side in its columns; the last layer has one."""
HOPS = 2
"""Products with the features in SGC."""
LIGHT_LAYERS = 3
"""Products with the trainable vectors in LightGCN."""
WALK = 10
"""Steps of the random walk of APPNP."""
POWERS = 3
"""Powers of A, from 0, in N-GCN."""
DEPTH = 8
"""Layers of GCNII."""

COLUMNS = "model.dropout=0 model.input_dropout=0 model.hidden_channels={hidden}"
TWO_LAYERS = f"model.num_layers=2 {COLUMNS}"
TWO_OF_HEADS = f"{TWO_LAYERS} model.heads={HEADS} model.attention_dropout=0".replace("{hidden}", "{per_head}")


@dataclass(frozen=True)
class BenchModel:
    """A model of which every method has the same weights."""

    run: str
    """Keys of a run, with the number of ``{hidden}`` columns, or of those ``{per_head}``."""
    shapes: Callable[[int, int, int], list[tuple[int, int]]]
    """(features, hidden, classes) -> shapes of the weight matrices, in the order of the model's parameters."""
    finds_links: bool = False
    """Whether it learns links from trainable vectors of the nodes, which have the same first values in every method."""

    def keys(self, hidden: int) -> list[str]:
        """The keys of a run with ``hidden`` columns."""
        return self.run.format(hidden=hidden, per_head=max(1, hidden // HEADS)).split()


MODELS = {
    "gcn": BenchModel(f"model=gcn {TWO_LAYERS}", lambda f, h, c: [(f, h), (h, c)]),
    # Each layer has a matrix for the neighbours, and one for the node itself.
    "sage": BenchModel(f"model=sage {TWO_LAYERS}", lambda f, h, c: [(f, h), (f, h), (h, c), (h, c)]),
    "sage-max": BenchModel(
        f"model=sage {TWO_LAYERS} model.aggregation=max", lambda f, h, c: [(f, h), (f, h), (h, c), (h, c)]
    ),
    # Each layer has the two matrices of its MLP.
    "gin": BenchModel(f"model=gin {TWO_LAYERS}", lambda f, h, c: [(f, h), (h, h), (h, c), (c, c)]),
    # Each layer has a weight matrix, and the (heads, columns) attention parameters of sources and of targets.
    "gat": BenchModel(
        f"model=gat {TWO_OF_HEADS}", lambda f, h, c: [(f, h), *[(HEADS, h // HEADS)] * 2, (h, c), (1, c), (1, c)]
    ),
    # Each layer has the (heads, columns) attention parameters, and a weight matrix for sources and one for targets.
    "gatv2": BenchModel(
        f"model=gatv2 {TWO_OF_HEADS}", lambda f, h, c: [(HEADS, h // HEADS), (f, h), (f, h), (1, c), (h, c), (h, c)]
    ),
    "sgc": BenchModel(f"model=sgc model.num_hops={HOPS}", lambda f, h, c: [(f, c)]),
    "ngcn": BenchModel(
        f"model=ngcn {COLUMNS} model.num_powers={POWERS} model.num_copies=1 model.classifier=dense model.bias=false",
        lambda f, h, c: [*[(f, h)] * POWERS, *[(h, c)] * POWERS, (POWERS * c, c)],
    ),
    "appnp": BenchModel(f"model=appnp {TWO_LAYERS} model.num_hops={WALK}", lambda f, h, c: [(f, h), (h, c)]),
    "gcnii": BenchModel(
        f"model=gcnii {COLUMNS} model.num_layers={DEPTH}", lambda f, h, c: [(f, h), *[(h, h)] * DEPTH, (h, c)]
    ),
    "lightgcn": BenchModel(
        f"model=lightgcn model.num_layers={LIGHT_LAYERS} task.channels={{hidden}}", lambda f, h, c: [], finds_links=True
    ),
}
ATTENTION = ("gat", "gatv2")
"""The models whose hidden columns are those of ``HEADS`` heads."""

COUNT, FROM_0 = {"least": 1}, {"least": 0}
"""Metadata of a key: the smallest value that it, or an element of its list, may have."""


@dataclass
class BenchConfig:
    """The keys of ``conf/bench.yaml``, which explains them."""

    op: str
    gnn: str
    graph: str
    order: str
    hidden: Optional[int] = field(metadata=COUNT)
    batch_size: Optional[int] = field(metadata=COUNT)
    made: bool
    scale: Optional[float] = field(metadata={"least": 1e-3})
    seed: int = field(metadata=FROM_0)
    presets: Optional[list[str]]
    alone: Optional[list[str]]
    separate: bool
    dropouts: list[float] = field(metadata=FROM_0)
    launches: Optional[str]
    kernels: Optional[list[str]]
    orders: Optional[list[str]]
    peers: list[str]
    methods: Optional[list[str]]
    baseline: Optional[str]
    overrides: list[str]
    fanouts: list[int]
    batches: int = field(metadata=COUNT)
    workers: int = field(metadata=FROM_0)
    widths: list[int] = field(metadata=COUNT)
    sizes_mb: list[float] = field(metadata={"least": 1e-3})
    num_parts: int = field(metadata=COUNT)
    rounds: int = field(metadata=COUNT)
    epochs: int = field(metadata=COUNT)
    warmup: int = field(metadata=FROM_0)
    at_once: int = field(metadata=COUNT)
    budget_s: float = field(metadata=FROM_0)
    limit_s: float = field(metadata=FROM_0)
    rates: Optional[str]
    tuning: Optional[str]
    nproc: int = field(metadata=COUNT)
    threads: Optional[int] = field(metadata=COUNT)
    alone_threads: Optional[list[int]] = field(metadata=COUNT)
    device: str
    backend: str
    malloc: str
    cache_dir: Optional[str]
    out: str


def load_bench(*overrides: str) -> BenchConfig:
    """The configuration that the command line ``overrides`` describe, without values that no key can have and
    combinations that measure nothing.

    Raises:
        ConfigError: one line naming the key, what is wrong with it and what it may be.
    """
    cfg = load_keys("bench", BenchConfig, list(overrides))
    known: dict[str, Iterable[str]] = {
        "op": OPERATIONS,
        "gnn": MODELS,
        "graph": (*LOOKALIKES, *TOYS) if cfg.made or cfg.op in ON_MADE else (*WORKLOADS, *choices("dataset")),
        "order": choices("reorder"),
        "malloc": ("tuned", "default"),
        "device": ("cpu", "cuda", "auto"),
        "backend": ("gloo", "nccl", "auto"),
        "kernels": choices("kernel"),
        "orders": choices("reorder"),
        "peers": ("torch", "pyg", "dgl"),
        "launches": cfg.presets or [*presets(), DEFAULT_PRESET],
        "alone": cfg.presets or presets(),
    }
    for key, choosable in known.items():
        value = getattr(cfg, key)
        check_choices(key, [value] if isinstance(value, str) else value or (), choosable)
    names = [[*preset.split(), ""][0] for preset in cfg.presets or ()]
    check_choices("presets", names, [*presets(), DEFAULT_PRESET])
    check_minima(cfg, {key.name: key.metadata["least"] for key in fields(cfg) if key.metadata})
    check_fanouts(cfg.fanouts)
    never_empty = "fanouts widths sizes_mb presets kernels orders alone_threads dropouts methods".split()
    for key, value in vars(cfg).items():
        if value == [] and key in never_empty:
            raise ConfigError(f"{key}=[] leaves nothing to measure: give one or more")
        if isinstance(value, list) and key != "fanouts" and len(set(value)) < len(value):
            raise ConfigError(f"{key} names something twice: leave one out")
    if cfg.op == "epoch" and cfg.epochs <= cfg.warmup:
        raise ConfigError(f"epochs={cfg.epochs} are all warm-up: give more than warmup={cfg.warmup}")
    if cfg.gnn in ATTENTION and (cfg.hidden or HEADS) % HEADS:
        raise ConfigError(f"hidden={cfg.hidden} columns are not those of {HEADS} heads: give a multiple of {HEADS}")
    if cfg.batch_size is not None and not MODELS[cfg.gnn].finds_links and cfg.op not in ("sampling", "minibatch"):
        raise ConfigError(f"batch_size is for gnn=lightgcn, and gnn={cfg.gnn} has one step an epoch: leave it out")
    if cfg.op == "collectives" and cfg.nproc < 2:
        raise ConfigError("op=collectives moves data between processes: give nproc=2 or more")
    if cfg.op not in OF_JOBS and cfg.nproc > 1:
        raise ConfigError(f"op={cfg.op} runs in one process: leave out nproc={cfg.nproc}")
    if cfg.made and (cfg.op != "epoch" or cfg.gnn != "gcn" or cfg.nproc > 1 or cfg.separate):
        raise ConfigError("made=true is for op=epoch gnn=gcn in one process: leave it out")
    if any(cfg.dropouts) and (cfg.gnn != "gcn" or max(cfg.dropouts) >= 1):
        raise ConfigError("dropouts are rates below 1, and for gnn=gcn: leave them out")
    if cfg.nproc == 1 and (cfg.alone or cfg.alone_threads):
        raise ConfigError("alone and alone_threads are for nproc of 2 or more: leave them out, or give nproc=2")
    return cfg


def presets() -> list[str]:
    """Names of our presets: the experiments that choose no dataset and no model."""
    named = {name: (conf_dir() / "experiment" / f"{name}.yaml").read_text() for name in choices("experiment")}
    return [name for name, text in named.items() if "override /dataset" not in text]


def run_config(cfg: BenchConfig, *overrides: str, preset: str = DEFAULT_PRESET) -> Config:
    """The configuration of a training run on the benchmark's graph, processes and threads; keys behind the name of the
    ``preset`` come last."""
    experiment, *own = preset.split()
    chosen = [] if experiment == DEFAULT_PRESET else [f"experiment={experiment}"]
    dataset = [] if cfg.graph in (*WORKLOADS, *TOYS) else [f"dataset={cfg.graph}"]
    keys = {key: getattr(cfg, key) for key in ("nproc", "threads", "device", "backend")}
    runtime = [f"runtime.{key}={'null' if value is None else value}" for key, value in keys.items()]
    common = [f"run_dir={quote(cfg.out)}", f"seed={cfg.seed}", "runtime.dtype=float32"]
    name = "minibatch" if cfg.op == "minibatch" else "config"
    return load_config(compose(*dataset, *cfg.overrides, *chosen, *overrides, *own, *runtime, *common, name=name))


def preset_config(cfg: BenchConfig, preset: str, hidden: int, bipartite: bool = False, dropout: float = 0.0) -> Config:
    """The configuration of one preset for the benchmark's task: Adam, learning rate 0.01, no weight decay.

    Keys behind the preset's name may change the task: ``loss_error`` then shows it.

    Args:
        bipartite: whether the graph has users and items, which a model that finds links then ranks.
        dropout: rate on the hidden layers.
    """
    model, task = MODELS[cfg.gnn], [f"model.dropout={dropout}"] if dropout else []
    if model.finds_links:
        every_edge = "task=link_prediction task.val_fraction=0 task.test_fraction=0"  # is a training pair
        task = ("task=link_ranking" if bipartite else every_edge).split()
        task.append(f"task.batch_size={'null' if cfg.batch_size is None else cfg.batch_size}")
    return run_config(cfg, *model.keys(hidden), *task, *TASK, preset=preset)


def minibatch_config(cfg: BenchConfig, num_ranks: int, preset: str = DEFAULT_PRESET) -> MinibatchConfig:
    """The configuration of one preset of op=minibatch: GraphSAGE-mean without dropout, and Adam; its keys come last."""
    has_sampler = any(key.startswith("sampler=") for key in preset.split())  # which has keys of its own
    draws = [] if has_sampler else [f"sampler.fanouts={cfg.fanouts}".replace(" ", "")]
    model = ["model=sage", f"model.num_layers={len(cfg.fanouts)}", f"model.hidden_channels={hidden_of(cfg)}"]
    size = (cfg.batch_size or BATCH_SIZE) * num_ranks
    loader = [f"loader.batch_size={size}", f"loader.num_workers={cfg.workers}"]
    run = run_config(cfg, *model, "model.dropout=0", *TASK, *draws, *loader, preset=preset)
    assert isinstance(run, MinibatchConfig)
    return run


def hidden_of(cfg: BenchConfig) -> int:
    """The columns between the layers."""
    return cfg.hidden or (WORKLOADS[cfg.graph].hidden if cfg.graph in WORKLOADS else HIDDEN)
