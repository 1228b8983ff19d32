"""NCCL with one rank on one GPU: captured collectives are replayed, and then their process group ends.

The framework's collectives return at once on one rank, so the test calls torch.distributed: an all-reduce, and a send
and a receive of this rank to itself, batched as in ``Axis.exchange``.
"""

import multiprocessing

import pytest
import torch
import torch.distributed as dist

LIMIT_S = 90
SIZE = 1 << 20


def replay_collectives() -> None:
    """Replay y = all-reduce(x) and z = exchange(x) with new values of x; on one rank, y and z equal x."""
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    device = torch.device("cuda", 0)
    x = torch.zeros(SIZE, device=device)
    y, z = torch.empty_like(x), torch.empty_like(x)

    def step() -> None:
        y.copy_(x)
        dist.all_reduce(y)
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, 0), dist.P2POp(dist.irecv, z, 0)]):
            work.wait()

    step()  # opens the connections
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.Stream(device), capture_error_mode="thread_local"):
        step()
    for turn in range(1, 4):
        x.fill_(turn)
        y.fill_(torch.nan)
        z.fill_(torch.nan)
        graph.replay()
        assert torch.equal(y, x), f"all-reduce, replay {turn}"
        assert torch.equal(z, x), f"exchange with itself, replay {turn}"
    torch.cuda.synchronize(device)
    graph.reset()  # destroy_process_group waits for graphs that captured its collectives (pytorch#115388)
    dist.destroy_process_group()


@pytest.mark.gpu
@pytest.mark.skipif(not dist.is_nccl_available(), reason="this torch has no NCCL")
def test_captured_collectives_are_replayed_and_their_group_ends() -> None:
    """A child process runs the collectives, since a collective or the end of the group may hang."""
    process = multiprocessing.get_context("spawn").Process(target=replay_collectives)
    process.start()
    process.join(LIMIT_S)
    hung = process.is_alive()
    process.kill()
    assert not hung, f"the process hung and was stopped after {LIMIT_S} s"
    assert process.exitcode == 0, "see the output of the process"
