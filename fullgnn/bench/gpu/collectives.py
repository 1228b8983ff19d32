"""NCCL on one GPU: collectives are captured in a CUDA graph and replayed; then the process group is ended.

The framework's collectives return at once on one rank, so torch.distributed is called here: an all-reduce, and a
send and receive of this rank to itself, as ``Axis.exchange`` batches them.
"""

from dataclasses import asdict
from datetime import timedelta

import torch
import torch.distributed as dist

from fullgnn.bench.gpu.check import Check, equal
from fullgnn.bench.gpu.worker import Report, Task

_SIZE = 1 << 20
_TIMEOUT_S = 30


def check_captured(device: torch.device, capture: bool) -> list[Check]:
    """y = all-reduce(x) and z = exchange(x), on one rank both x, replayed with other x.

    Args:
        capture: as a CUDA graph; otherwise, for a toy, launched each time and without the exchange: gloo connects no
            rank with itself.
    """
    x = torch.zeros(_SIZE, device=device)
    y, z = torch.empty_like(x), torch.empty_like(x)

    def step() -> None:
        y.copy_(x)
        dist.all_reduce(y)
        if not capture:
            return
        operations = [dist.P2POp(dist.isend, x, 0), dist.P2POp(dist.irecv, z, 0)]
        for work in dist.batch_isend_irecv(operations):
            work.wait()

    def launch() -> None:
        step() if graph is None else graph.replay()

    graph: torch.cuda.CUDAGraph | None = None
    step()  # connects
    if capture:
        torch.cuda.synchronize(device)
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream(device)
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            step()
    checks = []
    for turn in range(3):
        x.fill_(turn + 1)
        y.fill_(torch.nan)
        z.fill_(torch.nan)
        launch()
        how = f"{'replay' if capture else 'launch'} {turn + 1}"
        checks.append(equal("all-reduce", "values", how, y, x))
        if capture:
            checks.append(equal("exchange with itself", "values", how, z, x))
    if graph is not None:
        torch.cuda.synchronize(device)
        graph.reset()  # destroy_process_group waits for graphs that captured its collectives (pytorch#115388)
    return checks


def run(task: Task, report: Report) -> None:
    """A case each for the process group, its collectives and its end, which may hang."""
    if not task.toy and not dist.is_nccl_available():
        report.missing("nccl", "this torch has no NCCL")
        return

    def begin() -> None:
        backend, timeout = "gloo" if task.toy else "nccl", timedelta(seconds=_TIMEOUT_S)
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1, timeout=timeout)

    def captured() -> None:
        for check in check_captured(task.device, capture=not task.toy):
            report.add(["checks"], asdict(check))

    report.item("nccl: process group", begin, limit_s=_TIMEOUT_S + 5)
    if not dist.is_initialized():
        return
    report.item("nccl: captured collectives", captured, limit_s=_TIMEOUT_S + 5)
    report.item("nccl: destroy the process group", dist.destroy_process_group, limit_s=_TIMEOUT_S + 5)
