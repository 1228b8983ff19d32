"""A step of a task that finds links, made up for a skeleton (``trace.py``), which has neither pairs nor other ranks."""

from typing import Any

import torch
from torch import Tensor

from fullgnn.costs.links import PlannedLinks
from fullgnn.schemes.directory import StepRequest
from fullgnn.tasks.links import Step

NUMBERS_TO_FIND = 10
"""Integers for each id that ``Directory.find_steps`` holds at a time: its holder, row, place and others."""


def made_up_step(links: PlannedLinks, part: int, replica: int, device: torch.device) -> Step:
    """A mean step of rank (part, replica). As in a real run, it is a piece of the draws of an epoch."""
    holder = replica if links.draws.shape[1] > 1 else 0
    num_scores = int(links.draws[part, holder]) * links.width
    place = part * links.draws.shape[1] + holder
    wanted, served = round(links.rows[place].sum()), round(links.rows[:, place].sum())

    def of_step(count: int) -> Tensor:
        return torch.zeros(count, dtype=torch.int64, device=device)[: count // links.num_steps]

    scored = num_scores // links.num_steps // links.width * links.width
    owner, partner = of_step(num_scores)[:scored], of_step(num_scores)[:scored]
    request = None
    if links.num_ranks > 1:
        torch.zeros(NUMBERS_TO_FIND * wanted, dtype=torch.int64, device=device)  # until the rows of all steps are found
        request = StepRequest([of_step(wanted)], [of_step(served)], [0], wanted // links.num_steps)
        if not len(request.held[0]):  # of a few sampled rows: there is no row that a pair could name
            owner, partner = owner[:0], partner[:0]
    return Step(owner, partner, request, max(1, links.facts.num_train // links.num_steps))


class MadeUpDirectory:
    """Brings rows of other ranks that are zero, and takes memory as ``Directory.rows`` does.

    Args:
        shared: whether ranks read each other's rows in place.
    """

    def __init__(self, shared: bool):
        self.shared = shared
        self.slots: dict[str, Tensor] = {}  # that stay from step to step

    def rows(self, x: Tensor, request: StepRequest) -> Tensor:
        """See ``Directory.rows``."""
        return _ArrivingRows.apply(x, self, request)

    def passing(self, kind: str, like: Tensor, num_rows: int) -> Tensor:
        """(num_rows, F): a slot in shared memory, or rows that are sent."""
        made = like.new_zeros(num_rows, like.shape[1])
        if self.shared:
            self.slots[kind] = made
        return made


class _ArrivingRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, directory: MadeUpDirectory, request: StepRequest) -> Tensor:
        ctx.directory, ctx.request, ctx.num_own = directory, request, len(x)
        sent = directory.passing("rows", x, len(x) if directory.shared else len(request.rows_for[0]))
        arrived = x.new_zeros(len(request.held[0]), x.shape[1])
        if directory.shared:
            return arrived
        found = torch.cat([arrived])
        del sent
        return found

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        total = grad.new_zeros(ctx.num_own, grad.shape[1])
        if ctx.directory.shared:
            ctx.directory.passing("gradients", grad, ctx.request.most)
        else:
            grad.new_zeros(len(ctx.request.rows_for[0]), grad.shape[1])  # arrive
        return total, None, None
