"""Outputs of a model without dropout, and the metrics of its task."""

from collections.abc import Callable

import torch

from fullgnn.engine.blocks import all_logits
from fullgnn.engine.job import Job
from fullgnn.engine.state import Best
from fullgnn.schemes.base import ShardedGraph


@torch.no_grad()
def predict(model: torch.nn.Module, graph: ShardedGraph) -> torch.Tensor:
    """Compute the (num_local_nodes, num_outputs) output in evaluation mode, that is, without dropout."""
    model.eval()
    return all_logits(model, graph)


@torch.no_grad()
def evaluate(
    model: torch.nn.Module, job: Job, look: Callable[[torch.Tensor, Job], None] | None = None
) -> dict[str, float | None]:
    """Compute the metrics of all splits with one forward pass over the whole graph, the same on every rank.

    Args:
        look: gets the output before it is measured.
    """
    output = predict(model, job.graph)
    if look is not None:
        look(output, job)
    return job.task.measure(output, job.graph, job.scheme)


def confusion_of(job: Job, best: Best | None) -> dict[str, list[list[int]]] | None:
    """The confusion matrices of the model of the ``best`` epoch by split, the same on every rank; None unless the task
    counts them. It takes one more forward pass. Every rank calls it."""
    if best is None or not getattr(job.task, "counts_confusion", False):
        return None
    job.model.load_state_dict(best.model)
    return job.task.confusion(predict(job.model, job.graph), job.graph, job.scheme)  # type: ignore[attr-defined]
