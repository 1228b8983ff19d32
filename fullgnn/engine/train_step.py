"""One step of gradient descent on the whole graph."""

from torch import Tensor

from fullgnn.engine.blocks import all_logits, loss_logits
from fullgnn.engine.job import Job
from fullgnn.engine.state import TrainState
from fullgnn.tasks.links import LinkTask, Step
from fullgnn.tasks.task import part_of_loss
from fullgnn.telemetry.meter import Meter


def train_step(state: TrainState, job: Job, meter: Meter, draws: Step | None = None) -> None:
    """Change ``state`` by one step: forward, backward, sum of the gradients over the ranks, and update.

    Every rank calls it. ``state.gradients.results`` then holds the loss before the update. The step is CUDA-graph safe:
    fixed buffers, the same launches every time, no host synchronisation.

    Args:
        draws: the pairs of the step, of a task that finds links; None for another task. If such a step has no
            gradient to sum over the ranks, the results are those of this rank alone.
    """
    graph, gradients = job.graph, state.gradients
    with meter.phase("other"):
        gradients.zero()
        if isinstance(graph.features, Tensor):
            graph.features.grad = None  # set by the backward pass if skip_input_gradient=false
    if draws is None:
        loss = part_of_loss(job.task, loss_logits(state.model, graph), graph.train_labels)
    else:
        assert isinstance(job.task, LinkTask)
        loss = job.task.step_loss(all_logits(state.model, graph), graph, draws)
    loss.backward()
    if draws is None or gradients.has_replicated:
        gradients.sum_with(loss.detach(), job.scheme)
    else:
        gradients.note(loss.detach())
    with meter.phase("other"):
        if state.clip_norm is not None:
            gradients.clip(state.clip_norm, job.scheme)
        (state.rates or state.optimizer).step()
