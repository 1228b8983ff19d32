"""Accuracy on the three splits of a sharded graph."""

import torch

from fullgnn.engine.blocks import all_logits
from fullgnn.schemes.base import Scheme, ShardedGraph
from fullgnn.telemetry.epoch import Accuracies


@torch.no_grad()
def predict(model: torch.nn.Module, graph: ShardedGraph) -> torch.Tensor:
    """Compute the (num_local_nodes, num_classes) logits in evaluation mode, that is, without dropout."""
    model.eval()
    return all_logits(model, graph)


@torch.no_grad()
def evaluate(model: torch.nn.Module, graph: ShardedGraph, scheme: Scheme) -> Accuracies:
    """Compute the accuracies with one forward pass over the whole graph; the result is the same on every rank."""
    right = predict(model, graph).argmax(dim=1) == graph.labels
    num_right = scheme.sum_over_rows((graph.masks & right).sum(dim=1)).tolist()
    train, val, test = (count / total if total else None for count, total in zip(num_right, graph.num_split_nodes))
    return Accuracies(train, val, test)
