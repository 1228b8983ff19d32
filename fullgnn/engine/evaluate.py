"""What a model computes: for the rows with loss in a step, and for all rows, without dropout, in an evaluation."""

from collections.abc import Callable

import torch
from torch import Tensor

from fullgnn.engine.run import Run
from fullgnn.engine.state import Best
from fullgnn.schemes.base import ShardedGraph
from fullgnn.tasks.task import CountsConfusion


def all_logits(model: torch.nn.Module, graph: ShardedGraph) -> Tensor:
    """Compute the (num_local_nodes, num_classes) logits of all rows of this rank."""
    return model(graph.features, graph.blocks)


def loss_logits(model: torch.nn.Module, graph: ShardedGraph) -> Tensor:
    """Compute the (num_local_train, num_classes) logits of the rows with loss, and if possible of no other rows."""
    if graph.loss_block is None:
        return all_logits(model, graph).index_select(0, graph.train_index)
    return model(graph.features, graph.loss_blocks)


@torch.no_grad()
def predict(run: Run) -> torch.Tensor:
    """Compute the (num_local_nodes, num_outputs) output in evaluation mode, that is, without dropout."""
    run.model.eval()
    return all_logits(run.model, run.graph)


@torch.no_grad()
def evaluate(run: Run, look: Callable[[torch.Tensor, Run], None] | None = None) -> dict[str, float | None]:
    """Compute the metrics of all splits with one forward pass over the whole graph, the same on every rank.

    Args:
        look: gets the output before it is measured.
    """
    output = predict(run)
    if look is not None:
        look(output, run)
    return run.task.measure(output, run.graph, run.scheme)


def confusion_of(run: Run, best: Best | None) -> dict[str, list[list[int]]] | None:
    """The confusion matrices of the model of the ``best`` epoch by split, the same on every rank; None unless the task
    counts them. It takes one more forward pass. Every rank calls it."""
    task = run.task
    if best is None or not (isinstance(task, CountsConfusion) and task.counts_confusion):
        return None
    run.model.load_state_dict(best.model)
    return task.confusion(predict(run), run.graph, run.scheme)
