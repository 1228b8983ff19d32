"""Outputs of a model without dropout, and the metrics of its task."""

import torch

from fullgnn.engine.blocks import all_logits
from fullgnn.engine.job import Job
from fullgnn.schemes.base import ShardedGraph


@torch.no_grad()
def predict(model: torch.nn.Module, graph: ShardedGraph) -> torch.Tensor:
    """Compute the (num_local_nodes, num_outputs) output in evaluation mode, that is, without dropout."""
    model.eval()
    return all_logits(model, graph)


@torch.no_grad()
def evaluate(model: torch.nn.Module, job: Job) -> dict[str, float | None]:
    """Compute the metrics of all splits with one forward pass over the whole graph, the same on every rank."""
    return job.task.measure(predict(model, job.graph), job.graph, job.scheme)
