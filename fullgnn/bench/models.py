"""The models that ``op=epoch`` trains: their keys in a run of ours, and the shapes of their weights."""

from collections.abc import Callable
from dataclasses import dataclass

Shapes = list[tuple[int, int]]

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

NO_DROPOUT = "model.dropout=0 model.input_dropout=0"
HIDDEN = f"{NO_DROPOUT} model.hidden_channels={{hidden}}"
TWO_LAYERS = f"model.num_layers=2 {HIDDEN}"
TWO_OF_HEADS = f"{TWO_LAYERS} model.heads={HEADS} model.attention_dropout=0".replace("{hidden}", "{per_head}")


@dataclass(frozen=True)
class BenchModel:
    """A model of which every method has the same weights."""

    run: str
    """Keys of a run, with the number of ``{hidden}`` columns, or of those ``{per_head}``."""
    shapes: Callable[[int, int, int], Shapes]
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
        f"model=ngcn {HIDDEN} model.num_powers={POWERS} model.num_copies=1 model.classifier=dense model.bias=false",
        lambda f, h, c: [*[(f, h)] * POWERS, *[(h, c)] * POWERS, (POWERS * c, c)],
    ),
    "appnp": BenchModel(f"model=appnp {TWO_LAYERS} model.num_hops={WALK}", lambda f, h, c: [(f, h), (h, c)]),
    "gcnii": BenchModel(
        f"model=gcnii {HIDDEN} model.num_layers={DEPTH}", lambda f, h, c: [(f, h), *[(h, h)] * DEPTH, (h, c)]
    ),
    "lightgcn": BenchModel(
        f"model=lightgcn model.num_layers={LIGHT_LAYERS} task.channels={{hidden}}", lambda f, h, c: [], finds_links=True
    ),
}
ATTENTION = ("gat", "gatv2")
"""The models whose hidden columns are those of ``HEADS`` heads."""
