"""Other libraries' neighbour sampling, and their GraphSAGE trained on it, as their examples write them.

Each rank of a job trains on its own part of the training nodes and averages its gradients with the others', by torch's
``DistributedDataParallel``, which is how both libraries are used on several devices.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from fullgnn.bench.peers import Makers
from fullgnn.bench.peers.training import Convolve, Modules, descent
from fullgnn.bench.separate import OperatorTimes
from fullgnn.graph import Graph

MakeBatches = Callable[[], Iterator[Any]]
"""Makes the batches of an epoch."""

TrainBatches = Callable[[int], float]
"""Train on so many batches; returns the mean of their losses."""


@dataclass(frozen=True)
class SampledSetting:
    """What all methods of a benchmark of sampled training share."""

    fanouts: Sequence[int]  # from the targets outwards
    batch_size: int  # training nodes of a batch of one rank
    hidden: int
    lr: float
    seed: int
    workers: int = 0  # processes of each rank that make batches ahead
    dropout: float = 0.0
    weight_decay: float = 0.0


def dgl_graph(graph: Graph, dtype: torch.dtype = torch.int64) -> Any:
    """The graph with ids of ``dtype``; DGL 1.1.3 draws wrong neighbours by its fused sampler with int32 ids."""
    import dgl

    arrays = (*(torch.tensor(ids, dtype=dtype) for ids in (graph.indptr, graph.indices)), torch.empty(0, dtype=dtype))
    return dgl.graph(("csc", arrays), num_nodes=graph.num_nodes, idtype=dtype).formats(["csc"])


class DglSampler:
    """DGL's ``NeighborSampler``, fused."""

    def __init__(self, graph: Graph, fanouts: Sequence[int]):
        from dgl.dataloading import NeighborSampler

        self._graph, self._sampler = dgl_graph(graph), NeighborSampler(list(fanouts)[::-1], fused=True)

    def sample(self, targets: np.ndarray, epoch: int) -> list[Any]:
        """The blocks of a batch; ``epoch`` changes nothing."""
        return self._sampler.sample_blocks(self._graph, torch.from_numpy(targets.astype(np.int64)))[2]


class DglOperators:
    """DGL's ``sample_neighbors`` and ``to_block``, one after the other."""

    def __init__(self, graph: Graph, fanouts: Sequence[int], dtype: torch.dtype = torch.int64):
        import dgl

        self._dgl, self._graph, self._fanouts, self._dtype = dgl, dgl_graph(graph, dtype), fanouts, dtype
        self.spent = OperatorTimes()

    def sample(self, targets: np.ndarray, epoch: int) -> list[Any]:
        """The blocks of a batch; ``epoch`` changes nothing."""
        nodes, blocks = torch.tensor(targets, dtype=self._dtype), list[Any]()
        for fanout in self._fanouts:
            drawn = self.spent.add("sample_s", self._dgl.sampling.sample_neighbors, self._graph, nodes, fanout)
            blocks.append(self.spent.add("block_s", self._dgl.to_block, drawn, nodes))
            nodes = blocks[-1].srcdata[self._dgl.NID]
        return blocks


SAMPLERS: Makers = {
    "dgl": {"DGL, fused": DglSampler, "DGL": DglOperators, "DGL, int32": partial(DglOperators, dtype=torch.int32)}
}
"""Library -> method -> its maker (graph, fan-outs) -> an object with ``sample``."""


def dgl_step(graph: Graph, setting: SampledSetting, device: torch.device) -> "Sage":
    """DGL's ``DataLoader`` and ``SAGEConv``."""
    from dgl.dataloading import DataLoader, NeighborSampler
    from dgl.nn.pytorch import SAGEConv

    layers, own, options = _shared(graph, setting)
    convs = [SAGEConv(*widths, "mean") for widths in layers]
    features, labels = torch.from_numpy(graph.features), torch.from_numpy(graph.labels).long()
    sampler = NeighborSampler(list(setting.fanouts)[::-1], fused=True)
    loader = DataLoader(dgl_graph(graph), own, sampler, **options)

    def batches() -> Iterator[tuple[Any, ...]]:
        for inputs, targets, blocks in loader:
            moved = [block.to(device) for block in blocks]
            yield moved, features[inputs].to(device), labels[targets].to(device)

    return Sage(convs, lambda conv, h, hop, made: conv(made[hop], h), batches, setting, device)


def dgl_accuracy(graph: Graph, setting: SampledSetting, epochs: int) -> float:
    """Train ``dgl_step`` on a CPU, and return the test accuracy on the full graph at the best validation epoch."""
    model = dgl_step(graph, setting, torch.device("cpu"))
    whole, features = [dgl_graph(graph)] * len(setting.fanouts), torch.from_numpy(graph.features)
    labels, best, test = torch.from_numpy(graph.labels), -1.0, 0.0
    val_mask, test_mask = torch.from_numpy(graph.val_mask), torch.from_numpy(graph.test_mask)
    for _ in range(epochs):
        model.step(-(-int(graph.train_mask.sum()) // setting.batch_size))
        model.eval()
        with torch.no_grad():
            right = model(whole, features).argmax(dim=1) == labels
        model.train()
        val = right[val_mask].float().mean().item()
        if val > best:
            best, test = val, right[test_mask].float().mean().item()
    return test


def pyg_step(graph: Graph, setting: SampledSetting, device: torch.device) -> "Sage":
    """PyG's ``NeighborLoader`` and ``SAGEConv``, with what a layer does not need trimmed away."""
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader
    from torch_geometric.nn import SAGEConv
    from torch_geometric.utils import trim_to_layer

    layers, own, options = _shared(graph, setting)
    convs = [SAGEConv(*widths) for widths in layers]
    rows = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    edge_index = torch.from_numpy(np.stack([graph.indices.astype(np.int64), rows]))
    data = Data(torch.from_numpy(graph.features), edge_index, y=torch.from_numpy(graph.labels).long())
    loader = NeighborLoader(data, list(setting.fanouts), input_nodes=own, **options)

    def convolve(conv: torch.nn.Module, h: Tensor, hop: int, batch: Any) -> Tensor:
        if "num_sampled_nodes" not in batch:  # sampled by torch-sparse, which does not tell
            return conv(h, batch.edge_index)
        h, edges, _ = trim_to_layer(hop, batch.num_sampled_nodes, batch.num_sampled_edges, h, batch.edge_index)
        return conv(h, edges)

    def batches() -> Iterator[tuple[Any, ...]]:
        for batch in loader:
            moved = batch.to(device)
            yield moved, moved.x, moved.y[: batch.batch_size]

    return Sage(convs, convolve, batches, setting, device)


STEPS: Makers = {"pyg": {"PyG": pyg_step}, "dgl": {"DGL": dgl_step}}
"""Library -> method -> its maker (graph, setting, device) -> a ``Sage``, a model with its training."""


class Sage(torch.nn.Module):
    """Convolutions with a ReLU between them, and dropout before each; and their training.

    Args:
        convolve: (convolution, h, number of the layer, batch) -> the next h.
        batches: of an epoch: what ``convolve`` takes, the features of the sources, and the labels of the targets.
    """

    def __init__(
        self, convs: Modules, convolve: Convolve, batches: MakeBatches, setting: SampledSetting, device: torch.device
    ):
        super().__init__()
        self.convs, self._convolve, self._dropout = torch.nn.ModuleList(convs), convolve, setting.dropout
        self.to(device)
        net = self if dist.get_world_size() == 1 else torch.nn.parallel.DistributedDataParallel(self)
        self._update = descent(net, setting.lr, setting.weight_decay)
        self._stream = itertools.chain.from_iterable(batches() for _ in itertools.count())

    def forward(self, batch: Any, h: Tensor) -> Tensor:
        for hop, conv in enumerate(self.convs):
            h = F.dropout(F.relu(h) if hop else h, self._dropout, self.training)
            h = self._convolve(conv, h, hop, batch)
        return h

    def step(self, num_batches: int) -> float:
        """Train on so many batches; returns the mean of their losses."""

        def loss_of(made: tuple[Any, ...], net: torch.nn.Module) -> Tensor:
            batch, features, labels = made
            return F.cross_entropy(net(batch, features)[: len(labels)], labels)

        made = itertools.islice(self._stream, num_batches)
        return sum(self._update(partial(loss_of, batch)).item() for batch in made) / num_batches


def _shared(graph: Graph, setting: SampledSetting) -> tuple[list[tuple[int, int]], Tensor, dict[str, Any]]:
    """The widths of the layers, whose weights are made next; this rank's training nodes; the options of the loader."""
    torch.manual_seed(setting.seed)
    widths = [graph.num_features, *[setting.hidden] * (len(setting.fanouts) - 1), graph.num_classes]
    own = np.flatnonzero(graph.train_mask)[dist.get_rank() :: dist.get_world_size()]
    options = {"batch_size": setting.batch_size, "shuffle": True, "num_workers": setting.workers}
    return list(itertools.pairwise(widths)), torch.from_numpy(own), options
