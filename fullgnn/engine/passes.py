"""The passes of a model over the whole graph: one step of gradient descent, and an evaluation without dropout."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from fullgnn.distributed import wait_for_gpu
from fullgnn.engine.run import Run
from fullgnn.engine.state import Best
from fullgnn.schemes.base import ShardedGraph
from fullgnn.tasks.task import CountsConfusion, part_of_loss

if TYPE_CHECKING:
    from fullgnn.tasks.links import LinkTask, Step


def all_logits(model: torch.nn.Module, graph: ShardedGraph) -> Tensor:
    """Compute the (num_local_nodes, num_classes) logits of all rows of this rank."""
    return model(graph.features, graph.blocks)


def loss_logits(model: torch.nn.Module, graph: ShardedGraph) -> Tensor:
    """Compute the (num_local_train, num_classes) logits of the rows with loss, and if possible of no other rows."""
    if graph.loss_block is None:
        return all_logits(model, graph).index_select(0, graph.train_index)
    return model(graph.features, graph.loss_blocks)


def train_step(run: Run, draws: Step | None = None) -> None:
    """Change the state of ``run`` by one step: forward, backward, sum of the gradients over the ranks, and update.

    Every rank calls it. ``run.state.gradients.results`` then holds the loss before the update. The step is CUDA-graph
    safe: fixed buffers, the same launches every time, no host synchronisation.

    Args:
        draws: the pairs of the step, of a task that finds links; None for another task. If such a step has no
            gradient to sum over the ranks, the results are those of this rank alone.
    """
    graph, state, task = run.graph, run.state, run.task
    gradients = state.gradients
    with run.meter.phase("other"):
        gradients.zero()
        if isinstance(graph.features, Tensor):
            graph.features.grad = None  # set by the backward pass if skip_input_gradient=false
    if draws is None:
        loss = part_of_loss(task, loss_logits(state.model, graph), graph.train_labels)
    else:
        loss = cast("LinkTask", task).step_loss(all_logits(state.model, graph), graph, draws)
    loss.backward()
    if draws is None or gradients.has_replicated:
        gradients.sum_with(loss.detach(), run.scheme)
    else:
        gradients.note(loss.detach())
    with run.meter.phase("other"):
        if state.clip_norm is not None:
            gradients.clip(state.clip_norm, run.scheme)
        (state.rates or state.optimizer).step()


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


class AsyncNumbers:
    """Copies a few numbers from their device now, to be read later; later writes to them do not change the copy."""

    def __init__(self, numbers: Tensor):
        if numbers.device.type == "cuda":
            self._host = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
            self._host.copy_(numbers, non_blocking=True)
            self.arrived: torch.cuda.Event | None = torch.cuda.Event()
            self.arrived.record()
        else:
            self._host, self.arrived = numbers.clone(), None

    def read(self) -> list[float]:
        """Wait for these numbers only, not for work that was launched after them.

        Raises:
            TimeoutError: see ``wait_for_gpu``.
        """
        if self.arrived is not None:
            wait_for_gpu(self.arrived)
        return self._host.tolist()


def defers_reads(device: torch.device) -> bool:
    """Whether the host launches the next step before it reads the results of the current one."""
    return device.type == "cuda"
