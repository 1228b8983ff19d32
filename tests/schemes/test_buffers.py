"""All products of a rank share the memory that rows arrive in."""

from typing import Any

import numpy as np
import pytest
import torch

from fullgnn.config import Config
from fullgnn.distributed import SharedSlots, World
from fullgnn.kernels.support.aligned import is_aligned
from fullgnn.kernels.support.trials import TensorPeak
from fullgnn.schemes import buffers
from fullgnn.schemes.buffers import BufferPool
from tests.cases import config, dense_graph, layout_overrides
from tests.schemes.training import in_lines, prepare

CPU = torch.device("cpu")
WIDTHS = (3, 1, 17, 40, 8, 2, 40, 64, 5)
PRODUCTS = ("adj", "adj_t", "loss", "loss_t")


def pool() -> BufferPool:
    return BufferPool(CPU, lambda number: SharedSlots(1, 0, timeout_s=1.0, num_slots=number))


def input_of(nodes: Any, width: int) -> np.ndarray:
    """(len(nodes), width) small whole numbers, which bfloat16 holds exactly, as do sums of them in float64."""
    return (3 * np.asarray(nodes)[:, None] + 5 * np.arange(width)) % 11 - 5.0


def alternate(world: World, cfg: Config, kind: str) -> dict[str, Any]:
    """Four products of different row counts (A, A[train] and their transposes) in turns, each width after the other.

    The results of this rank, by product and round, with the original ids of their rows, and what the pool holds.
    """
    _, scheme, job = prepare(world, cfg, kind)
    graph, pool = job.graph, scheme.context.buffers
    (full,), (output,) = graph.block.products.values(), graph.loss_block.products.values()
    nodes = graph.block.source_id
    trained = graph.loss_block.own_id
    products = {
        "adj": (full.multiply, nodes, nodes),
        "adj_t": (full.multiply_t, nodes, nodes),
        "loss": (output.multiply, nodes, trained),
        "loss_t": (output.multiply_t, trained, nodes),
    }
    results: dict[str, list[np.ndarray]] = {name: [] for name in PRODUCTS}
    held = [len(pool.tensors())]
    for number, width in enumerate(WIDTHS):
        for name in PRODUCTS if number % 2 else PRODUCTS[::-1]:
            multiply, read, _ = products[name]
            x = torch.from_numpy(input_of(read.cpu().numpy(), width)).to(world.device)
            results[name].append(multiply(x).cpu().numpy())
        held.append(sum(tensor.nbytes for tensor in pool.tensors()))
    listed = [tensor.data_ptr() for tensor in graph.tensors() if tensor.numel()]
    times_listed = [listed.count(tensor.data_ptr()) for tensor in pool.tensors() if tensor.numel()]
    pool.release()
    return {
        "results": results,
        "rows": {name: rows.tolist() for name, (_, _, rows) in products.items()},
        "held": [*held, len(pool.tensors())],
        "times_listed": times_listed,
    }


@pytest.mark.sample(26)
@pytest.mark.parametrize(("world_size", "replication"), [(2, 1), (3, 1), (4, 2), (4, 1)])
@pytest.mark.parametrize("kind", ["directed", "tiny", "corner"])
@pytest.mark.parametrize("choice", ["scheme.shared_memory=true", "scheme.exchange=needed_rows", "scheme.exchange=auto"])
def test_products_that_alternate_over_one_pool_are_exact(
    ranks, world_size: int, replication: int, kind: str, choice: str
) -> None:
    """In ``tiny``, 4 ranks share 3 nodes, and in ``corner`` a single rank has rows with loss."""
    dense = dense_graph(kind)
    adj = dense.adj.copy()
    np.fill_diagonal(adj, 1)
    trained = np.flatnonzero(dense.train_mask)
    every = np.arange(len(adj))
    matrices = {"adj": (adj, every), "adj_t": (adj.T, every)}
    matrices |= {"loss": (adj[trained], every), "loss_t": (adj[trained].T, trained)}
    expected = {name: [matrix @ input_of(read, w) for w in WIDTHS] for name, (matrix, read) in matrices.items()}
    for aligned in (False, True):
        for wire in ("null", "bfloat16"):
            cfg = config(
                *layout_overrides(replication), "runtime.dtype=float64", "normalization=none", choice,
                "optimizations.loss_rows_only=true", f"scheme.wire_dtype={wire}",
                *([] if "shared" in choice else ["scheme.shared_memory=false"]),
            )  # fmt: skip
            run = (in_lines, alternate) if aligned else (alternate,)
            for rank in ranks(world_size)(*run, cfg, kind):
                for name, results in rank["results"].items():
                    rows = rank["rows"][name]
                    rows = np.searchsorted(trained, rows) if name == "loss" else rows
                    for result, whole in zip(results, expected[name], strict=True):
                        np.testing.assert_array_equal(result, whole[rows])
                assert rank["held"][0] == rank["held"][-1] == 0  # before the first product, and after the release
                assert rank["held"] == [*sorted(rank["held"][:-1]), 0]  # a narrower product allocates nothing
                assert rank["held"][-2] == rank["held"][WIDTHS.index(64) + 1]
                assert set(rank["times_listed"]) <= {1}


@pytest.mark.parametrize("width", [1, 7, 8, 41])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_views_have_the_shape_and_the_strides_that_products_read(width: int, dtype: torch.dtype) -> None:
    shared = pool()
    for num_rows in (0, 5, 3):
        arriving, padded = shared.arriving(2, num_rows, width, dtype), shared.padded(num_rows, width, dtype)
        assert arriving.shape == (2, num_rows, width) and arriving.is_contiguous() and arriving.dtype == dtype
        assert padded.shape == (num_rows, width) and is_aligned(padded) and padded.dtype == dtype
        arriving.fill_(1)
        assert (padded.fill_(2) == 2).all() and (arriving == 1).all()  # they do not overlap


def test_the_pool_holds_the_bytes_of_the_largest_request() -> None:
    """A row of 41 float32 takes 3 lines of 64 bytes."""
    shared = pool()
    for request, arriving, padded in (
        ((10, 41, torch.float32), 2 * 10 * 41 * 4, 10 * 192),
        ((10, 16, torch.float64), 2 * 10 * 41 * 4, 10 * 192),
        ((3, 41, torch.float32), 2 * 10 * 41 * 4, 10 * 192),
        ((10, 41, torch.float64), 2 * 10 * 41 * 8, 10 * 384),
    ):
        shared.arriving(2, *request)
        shared.padded(*request)
        assert [tensor.nbytes for tensor in shared.tensors()] == [arriving, padded]
    shared.release()
    assert shared.tensors() == []


def test_the_old_bytes_are_free_before_the_new_ones_are_allocated() -> None:
    peak = TensorPeak(CPU)
    with peak.watch():
        shared = pool()
        for width in (1000, 2000, 500, 3000):
            shared.arriving(2, 10, width, torch.float32)
    assert peak.bytes == 2 * 10 * 3000 * 4


def test_growth_keeps_the_bytes_that_a_cuda_graph_was_captured_with(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, capturing = pool(), [False]
    monkeypatch.setattr(buffers, "is_capturing", lambda device: capturing[0])
    for width in (1, 2):  # epochs before the capture
        shared.arriving(2, 3, width, torch.float64)
    capturing[0] = True
    captured = shared.arriving(2, 3, 1, torch.float64).fill_(7)
    capturing[0] = False
    for width, num_bytes in ((2, [96]), (5, [96, 240]), (6, [96, 288])):  # evaluations after it
        shared.arriving(2, 3, width, torch.float64).fill_(8)
        assert [tensor.nbytes for tensor in shared.tensors()] == num_bytes
        assert (captured == 7).all() == (width > 2)
        captured.fill_(7)  # a replay
        assert captured.data_ptr() in [tensor.data_ptr() for tensor in shared.tensors()]
    shared.release()
    assert shared.tensors() == []
