"""The steps of an epoch of a task that finds links, each with pairs of its own.

    host      the pairs of the next epoch are drawn by a thread while a GPU computes this one; on a CPU, where drawing
              and computing share the cores, they are drawn when the epoch begins
    device    the pairs of all steps of an epoch

Where one rank holds all rows, all steps but perhaps the last one of an epoch have equally many pairs. A CUDA graph of
such a step reads its pairs from two fixed tensors, into which those of each step are copied before its replay. The last
step runs eagerly if it has fewer.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import torch

from fullgnn.engine.passes import train_step
from fullgnn.engine.run import Run
from fullgnn.kernels.support import gpu
from fullgnn.nn import set_epoch
from fullgnn.tasks.links import DrawnPairs, LinkTask, Step
from fullgnn.telemetry.meter import Cost


class LinkSteps:
    """The steps of one rank."""

    def __init__(self, run: Run):
        assert isinstance(run.task, LinkTask)
        self._task, self._run, self._state = run.task, run, run.state
        self._steps: list[Step] = []  # of this epoch
        self._epoch = self._first = 0  # the number of the epoch; of its first step, from 1 over all epochs
        self._fixed: Step | None = None  # what a CUDA graph reads
        self._thread: ThreadPoolExecutor | None = None
        device = run.graph.labels.device
        if device.type != "meta" and not gpu.runs_host_loops(device):  # where a step is planned, nothing is drawn
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="fullgnn-draws")
        self._ahead: tuple[int, Future[DrawnPairs]] | None = None  # an epoch, and its pairs

    def begin(self, epoch: int) -> None:
        """Prepare the steps of ``epoch``. Every rank calls it."""
        if epoch == self._epoch:
            return
        task, graph = self._task, self._run.graph
        self._epoch, self._first = epoch, (epoch - 1) * task.num_steps + 1
        if task.make_steps is not None:
            self._steps = task.make_steps()
            return
        self._steps = task.placed(graph, self._drawn(epoch))
        if self._thread is not None:
            self._ahead = epoch + 1, self._thread.submit(task.drawn, graph, epoch + 1)

    def run(self, replay: Callable[[], None] | None = None, captured: Cost | None = None) -> None:
        """Run each step that ``begin`` has prepared. The results are then the means over the steps.

        Args:
            replay: replays a step that reads the pairs of ``run_fixed``; None: all steps run eagerly.
            captured: the bytes and counts of a replay.
        """
        results, summed = self._state.gradients.results, self._state.gradients.has_replicated
        total = torch.zeros_like(results, dtype=torch.float64)
        for number, step in enumerate(self._steps, self._first):
            set_epoch(self._state.model, number)  # each step has dropout masks of its own
            if replay is None or captured is None:
                train_step(self._run, step)
            elif self._fits(step):
                self._write(step)
                replay()
                self._run.meter.add(captured)
            else:
                with self._run.meter.untimed() as cost:
                    train_step(self._run, step)
                self._run.meter.add(cost)
            total += results
        if not summed:  # the steps have left the sums over the ranks to this one
            self._run.scheme.sum_over_rows(total)
        results.copy_(total / len(self._steps))
        self._steps, self._epoch = [], 0

    def run_distinct(self) -> None:
        """Run the first step that ``begin`` has prepared, and the last one, which may have fewer pairs. All steps are
        then still to be run."""
        last = len(self._steps) - 1
        for number in range(0, last + 1, max(last, 1)):
            set_epoch(self._state.model, self._first + number)
            train_step(self._run, self._steps[number])

    def fix(self) -> None:
        """Write the pairs of the first step into the memory that ``run_fixed`` reads."""
        first = self._steps[0]
        self._fixed = replace(first, owner=first.owner.clone(), partner=first.partner.clone())
        set_epoch(self._state.model, self._first)

    def run_fixed(self) -> None:
        """Run the step whose pairs are in the fixed memory; CUDA-graph safe."""
        train_step(self._run, self._fixed)

    def close(self) -> None:
        """End the thread, after the pairs that it draws."""
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
        self._ahead = None

    def _fits(self, step: Step) -> bool:
        fixed = self._fixed
        return fixed is not None and (len(step.owner), step.num_draws) == (len(fixed.owner), fixed.num_draws)

    def _write(self, step: Step) -> None:
        assert self._fixed is not None
        self._fixed.owner.copy_(step.owner)
        self._fixed.partner.copy_(step.partner)

    def _drawn(self, epoch: int) -> DrawnPairs:
        (ahead, pairs), self._ahead = self._ahead or (0, None), None
        if pairs is not None and ahead == epoch:
            return pairs.result()
        return self._task.drawn(self._run.graph, epoch)
