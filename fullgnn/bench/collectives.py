"""The collectives that a scheme is made of, as the backend offers them, by the size of the whole tensor.

``GB/s`` is that size over the time: the rate that a rank with the whole tensor sees, not the traffic of one algorithm.
"""

import functools
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from fullgnn.bench.config import BenchConfig
from fullgnn.bench.harness import Method, Outcome, Results, measure, rate, timed
from fullgnn.distributed import World

# The collectives on one tensor, which torch 2.13 renamed.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def run(cfg: BenchConfig, world: World) -> Results:
    """Time every collective at every size of ``cfg.sizes_mb``; called on every rank."""
    for size_mb in cfg.sizes_mb:
        num_floats = max(1, int(size_mb * 2**18) // world.size) * world.size
        case, about = {"size_mb": size_mb}, rate("gb_per_s", 4 * num_floats)
        methods = [
            Method(name, "collective", timed(call, world.device), world.size, case=case, about=about)
            for name, call in collectives(world, num_floats).items()
        ]
        yield Outcome(*measure(methods, world, cfg.rounds, cfg.warmup, cfg.budget_s))


def collectives(world: World, num_floats: int) -> dict[str, Callable[[], object]]:
    """Each collective on a whole tensor of ``num_floats`` float32; ``piece`` is the part of one rank."""
    whole = torch.ones(num_floats, device=world.device)
    other = torch.zeros_like(whole)
    piece = torch.ones(num_floats // world.size, device=world.device)
    group = world.group
    return {
        "broadcast": functools.partial(dist.broadcast, whole, src=0, group=group),
        "all_reduce": functools.partial(dist.all_reduce, other, group=group),
        "all_gather": functools.partial(_all_gather, other, piece, group=group),
        "reduce_scatter": functools.partial(_reduce_scatter, piece, whole, group=group),
        "all_to_all_single": functools.partial(dist.all_to_all_single, other, whole, group=group),
        "isend/irecv pair": functools.partial(_swap, world, whole, other),
    }


def _swap(world: World, whole: Tensor, other: Tensor) -> None:
    """Ranks 2i and 2i + 1 send each other the whole tensor; the last of an odd number has nothing to do."""
    partner = world.rank ^ 1
    if partner < world.size:
        calls = [dist.P2POp(dist.isend, whole, partner), dist.P2POp(dist.irecv, other, partner)]
        for work in dist.batch_isend_irecv(calls):
            work.wait()
