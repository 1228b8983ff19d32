"""NCCL on one GPU: collectives are captured in a CUDA graph and replayed; then the process group is ended.

The framework's collectives return at once on one rank, so torch.distributed is called here: an all-reduce, and a
send and receive of this rank to itself, as ``Axis.exchange`` batches them.
"""

from dataclasses import asdict
from datetime import timedelta

import torch
import torch.distributed as dist

from fullgnn.bench.gpu.record import Check
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
        if capture:
            for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, 0), dist.P2POp(dist.irecv, z, 0)]):
                work.wait()

    step()  # connects
    launch, graph, results = step, None, {"all-reduce": y}
    if capture:
        torch.cuda.synchronize(device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.Stream(device), capture_error_mode="thread_local"):
            step()
        launch, results = graph.replay, results | {"exchange with itself": z}
    checks = []
    for turn in range(1, 4):
        x.fill_(turn)
        y.fill_(torch.nan)
        z.fill_(torch.nan)
        launch()
        case = f"{'replay' if capture else 'launch'} {turn}"
        for subject, found in results.items():
            checks.append(Check(subject, "values", case, passed=torch.equal(found, x)))
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
