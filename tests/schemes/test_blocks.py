"""The blocks that a rank stores, the rows that it receives and the buffers that it reuses."""

from itertools import product

import numpy as np
import pytest
import torch

from fullgnn.config import Config
from fullgnn.distributed import World
from fullgnn.kernels.support.aligned import empty_aligned
from fullgnn.schemes.multiplication import DistributedMultiplication
from fullgnn.schemes.product_layout import OWN
from tests.cases import LAYOUTS, config, dense_graph, layout_overrides
from tests.schemes.training import in_lines, only_product, prepare

WIDTH = 6


def multiply_once(world: World, cfg: Config, kind: str) -> dict:
    """The cost of one forward product on this rank, and the blocks and buffers that the rank holds."""
    meter, scheme, job = prepare(world, cfg, kind)
    adj, node_id, place = only_product(job), job.graph.block.source_id, scheme.context
    x = torch.randn(len(node_id), WIDTH, dtype=torch.float64, device=world.device)
    adj.multiply(x)
    addresses = [tensor.data_ptr() for tensor in place.buffers.tensors()]
    meter.take()
    adj.multiply(x)
    return {
        "bytes": meter.take().bytes_received,
        "part": place.part,
        "replica": place.replica,
        "sources": [plan.source for plan in adj.multiply.exchange.plans],
        "nnz": adj.multiply.nnz,
        "shares_blocks": adj.multiply.stages is adj.multiply_t.stages,
        "buffers_reused": addresses == [tensor.data_ptr() for tensor in place.buffers.tensors()],
        "node_id": node_id.tolist(),
        "imbalance": scheme.balance.nnz,
        "rank_nnz": scheme.balance.rank_nnz,
    }


def case(replication: int, *overrides: str) -> Config:
    return config(*layout_overrides(replication), "runtime.dtype=float64", *overrides)


def expected_rows(rank: dict, adj: np.ndarray, replication: int, cfg: Config) -> dict[str, int]:
    """Rows that a rank receives in one product, by collective, from the sizes of the blocks alone.

    ``adj`` is dense, in the order of the run, with self-loops.
    """
    order, exchange, split = (cfg.scheme[key] for key in ("stage_order", "exchange", "split_rows"))
    n, part, replica = len(adj), rank["part"], rank["replica"]
    num_parts = len(rank["all_sizes"])
    bounds = [i * n // num_parts for i in range(num_parts + 1)]
    size = rank["all_sizes"]
    slices = replication if split else 1
    cuts = [bounds[part] + q * size[part] // slices for q in range(slices + 1)]
    own = slice(cuts[replica % slices], cuts[replica % slices + 1]) if split else slice(bounds[part], bounds[part + 1])
    num_own = own.stop - own.start
    rows = {"broadcast": 0, "gather": 0, "exchange": 0, "all_reduce": 0, "reduce_scatter": 0}
    for source in rank["sources"]:
        columns = np.arange(bounds[source], bounds[source + 1])
        if exchange == "needed_rows":
            columns = columns[adj[bounds[part] : bounds[part + 1], columns].any(axis=0)]
        here = int(((columns >= own.start) & (columns < own.stop)).sum())
        if source == part and not split:
            continue
        if order == "diagonal" or exchange == "needed_rows":
            rows["exchange"] += len(columns) - here
        elif source == part:
            rows["gather"] += size[part] - num_own
        else:
            rows["broadcast"] += size[source]
    if split:
        rows["reduce_scatter"] = (replication - 1) * num_own
    else:
        rows["all_reduce"] = 2 * (replication - 1) * size[part] / replication
    return rows


@pytest.mark.sample(19)
@pytest.mark.parametrize(("world_size", "replication"), LAYOUTS)
@pytest.mark.parametrize("kind", ["symmetric", "directed"])
def test_each_block_is_stored_once_and_bytes_are_exact(ranks, world_size: int, replication: int, kind: str) -> None:
    dense = dense_graph(kind).adj.copy()
    np.fill_diagonal(dense, 1)
    num_parts = world_size // replication
    sizes = [(i + 1) * 29 // num_parts - i * 29 // num_parts for i in range(num_parts)]
    choices = product(("diagonal", "broadcast"), ("broadcast", "needed_rows"), ("true", "false"))
    for order, exchange, split in choices:
        cfg = case(
            replication, f"scheme.stage_order={order}", f"scheme.exchange={exchange}", f"scheme.split_rows={split}"
        )
        by_rank = ranks(world_size)(multiply_once, cfg, kind)
        assert sum(rank["nnz"] for rank in by_rank) == np.count_nonzero(dense)  # every block is multiplied exactly once
        expected = [expected_rows(rank | {"all_sizes": sizes}, dense, replication, cfg) for rank in by_rank]
        for rank, rows in zip(by_rank, expected):
            assert rank["buffers_reused"]
            assert rank["shares_blocks"] == (kind == "symmetric")
            received = {name: count for name, count in rank["bytes"].items() if count}
            assert received == {name: count * WIDTH * 8 // 1 for name, count in rows.items() if count}
        loads = [rank["nnz"] for rank in by_rank]
        assert by_rank[0]["imbalance"] == pytest.approx(max(loads) / np.mean(loads))
        assert all(rank["rank_nnz"] == tuple(loads) for rank in by_rank)
        held = sorted(node for rank in by_rank for node in rank["node_id"])
        copies = 1 if split == "true" else replication
        assert held == sorted(list(range(29)) * copies)


@pytest.mark.sample(9)
@pytest.mark.parametrize(("world_size", "replication"), LAYOUTS)
@pytest.mark.parametrize("stage_order", ["diagonal", "broadcast"])
def test_mean_words_follow_the_formula(ranks, world_size: int, replication: int, stage_order: str) -> None:
    """With blocks of equal size, a rank receives N F (1/r - 1/p + 2 (r-1)/p) words if replicas hold the same rows, as
    published, and N F (1/r - 1/p + (r-1)/p (1 + 1/r)) words if each replica holds a slice of the rows."""
    n, p, r = 48, world_size, replication
    for split, reduction in (("false", 2 * (r - 1) / p), ("true", (r - 1) / p * (1 + 1 / r))):
        cfg = case(
            r, "dataset=synthetic", f"dataset.num_nodes={n}", "dataset.num_edges=400", "scheme.exchange=broadcast",
            f"scheme.split_rows={split}", f"scheme.stage_order={stage_order}",
        )  # fmt: skip
        words = [sum(count.values()) / 8 for count in ranks(world_size)(received, cfg)]
        assert np.mean(words) == pytest.approx(n * WIDTH * (1 / r - 1 / p + reduction))


def received(world: World, cfg: Config) -> dict[str, int]:
    from fullgnn.engine import set_up
    from fullgnn.telemetry.meter import Meter

    meter = Meter(world.device)
    job = set_up(cfg, world, meter)
    meter.take()
    only_product(job).multiply(torch.ones(len(job.graph.block.source_id), WIDTH, dtype=torch.float64))
    return meter.take().bytes_received


def gradient_of_the_sum(world: World, cfg: Config, kind: str) -> dict:
    """The gradient of the sum of A @ X, whose backward pass receives an expanded gradient of stride 0."""
    _, _, job = prepare(world, cfg, kind)
    adj, node_id = only_product(job), job.graph.block.source_id
    x = torch.ones(len(node_id), WIDTH, dtype=torch.float64, device=world.device, requires_grad=True)
    adj.spmm(x).sum().backward()
    assert x.grad is not None
    return {"node_id": node_id.tolist(), "grad": x.grad.cpu().numpy()}


@pytest.mark.sample(3)
@pytest.mark.parametrize(("world_size", "replication"), [(1, 1), (2, 1), (2, 2)])
@pytest.mark.parametrize("kernel", ["blocked", "torch"])
@pytest.mark.parametrize("shared", ["true", "false"])
def test_a_gradient_may_lie_in_any_way(ranks, world_size: int, replication: int, kernel: str, shared: str) -> None:
    dense = dense_graph("directed").adj.copy()
    np.fill_diagonal(dense, 1)
    cfg = case(replication, "normalization=none", f"kernel={kernel}", f"scheme.shared_memory={shared}")
    for rank in ranks(world_size)(gradient_of_the_sum, cfg, "directed"):
        expected = np.repeat(dense.sum(axis=0)[rank["node_id"], None], WIDTH, axis=1)
        np.testing.assert_allclose(rank["grad"], expected, rtol=0, atol=1e-12)


def test_auto_sends_needed_rows_only_where_they_are_few(ranks) -> None:
    """Two cliques joined by one edge need one row of each other; a complete graph needs all of them."""
    for kind, words in (("cliques", 1), ("complete", 8)):
        for stage_order, name in (("diagonal", "exchange"), ("broadcast", "broadcast")):
            num_bytes = ranks(2)(exchanged, case(1, f"scheme.stage_order={stage_order}"), kind)
            name = "exchange" if kind == "cliques" else name
            assert num_bytes == [{name: words * WIDTH * 8}] * 2, (kind, stage_order)


def exchanged(world: World, cfg: Config, kind: str) -> dict[str, int]:
    from scipy.sparse import csr_array

    from fullgnn.engine import set_up
    from fullgnn.graph import Graph
    from fullgnn.telemetry.meter import Meter

    adj = np.kron(np.eye(2), np.ones((8, 8))) if kind == "cliques" else np.ones((16, 16))
    adj[7, 8] = adj[8, 7] = 1
    graph = Graph.from_scipy(
        csr_array(adj), features=np.ones((16, 2)), labels=np.zeros(16, int), train_mask=np.ones(16, bool), num_classes=2
    )
    meter = Meter(world.device)
    job = set_up(cfg, world, meter, graph if world.rank == 0 else None)
    meter.take()
    only_product(job).multiply(torch.ones(8, WIDTH, dtype=torch.float64))
    return meter.take().bytes_received


def own_rows(world: World, cfg: Config) -> list[tuple[int, bool, bool]]:
    """For each stage that reads own rows: their stride, whether they are X itself, and whether they are right."""
    _, _, job = prepare(world, cfg, "symmetric")
    exchange, scale = only_product(job).multiply.exchange, only_product(job).multiply.input_scale
    x = empty_aligned(len(scale), WIDTH, like=scale).copy_(torch.arange(WIDTH))
    facts = []
    for factor in (scale, None):
        for step, rows in enumerate(exchange.steps(x, factor)):
            if rows is not None and exchange.plans[step].transport == OWN:
                exact = x if factor is None else scale[:, None] * x
                facts.append((rows.stride(0), rows.data_ptr() == x.data_ptr(), torch.equal(rows, exact)))
    return facts


@pytest.mark.parametrize(("world_size", "exchange"), [(1, "auto"), (2, "needed_rows"), (2, "broadcast")])
def test_own_rows_begin_a_line_unless_whole_blocks_leave(ranks, world_size: int, exchange: str) -> None:
    cfg = case(1, f"scheme.exchange={exchange}", "scheme.shared_memory=false", "normalization=sym")
    for rank in ranks(world_size)(own_rows, cfg):
        whole = exchange == "broadcast"
        stride = WIDTH if whole else 8  # numbers of a memory line
        assert rank == [(stride, False, True), (stride, not whole, True)]


LINE = 8  # float64 numbers in a memory line: one cache line of a CPU, two sectors of a GPU


def rows_read(world: World, cfg: Config) -> dict:
    """One forward product and one backward: results, bytes, and the strides of the rows that were multiplied."""
    meter, scheme, job = prepare(world, cfg, "directed")
    adj, node_id = only_product(job), job.graph.block.source_id
    strides: list[int] = []
    multiply = DistributedMultiplication.multiply_slice

    def noted(self, piece, h, *args) -> None:
        strides.append(h.stride(0))
        multiply(self, piece, h, *args)

    # Row i holds whole numbers from node_id[i] on, so that every sum is exact.
    x = node_id[:, None].to(torch.float64) + torch.arange(WIDTH, device=world.device)
    meter.take()
    DistributedMultiplication.multiply_slice = noted
    try:
        results = [adj.multiply(x), adj.multiply_t(x)]
    finally:
        DistributedMultiplication.multiply_slice = multiply
    buffer_bytes = [tensor.nbytes for tensor in scheme.context.buffers.tensors()]
    scheme.context.buffers.release()
    return {
        "results": [result.cpu().numpy() for result in results],
        "bytes": meter.take().bytes_received,
        "strides": strides,
        "buffer_bytes": buffer_bytes,
        "num_held": len(scheme.context.buffers.tensors()),
    }


@pytest.mark.sample(6)
@pytest.mark.parametrize(("world_size", "replication"), [(1, 1), (3, 1), (4, 2)])
@pytest.mark.parametrize("exchange", ["broadcast", "needed_rows"])
@pytest.mark.parametrize("normalization", ["sym", "none"])
def test_products_on_a_gpu_read_lines_and_rows_travel_without_gaps(
    ranks, world_size: int, replication: int, exchange: str, normalization: str
) -> None:
    for stage_order, wire in product(("diagonal", "broadcast"), ("null", "bfloat16")):
        cfg = case(
            replication, f"scheme.exchange={exchange}", f"scheme.stage_order={stage_order}",
            f"scheme.wire_dtype={wire}", f"normalization={normalization}", "scheme.shared_memory=false",
        )  # fmt: skip
        plain = ranks(world_size)(rows_read, cfg)
        padded = ranks(world_size)(in_lines, rows_read, cfg)
        for of_plain, of_padded in zip(plain, padded, strict=True):
            assert all(np.array_equal(*pair) for pair in zip(of_plain["results"], of_padded["results"], strict=True))
            assert of_plain["bytes"] == of_padded["bytes"]
            assert len(of_plain["strides"]) == len(of_padded["strides"])
            assert set(of_padded["strides"]) <= {LINE}
            assert of_plain["num_held"] == of_padded["num_held"] == 0  # after the release


def test_the_lines_of_a_gpu_are_counted(ranks) -> None:
    """Buffers receive rows, and one aligned buffer is read; each has as many rows as arrive at most in a stage.

    Of 3 ranks, each receives in two stages, hence in two buffers; of 2 ranks, each receives in one stage.
    """
    cfg = case(1, "scheme.exchange=broadcast", "scheme.shared_memory=false")
    for rank in ranks(3)(in_lines, rows_read, cfg):  # blocks of 9, 10 and 10 rows
        assert rank["buffer_bytes"] == [2 * 10 * WIDTH * 8, 10 * LINE * 8]
    for rank, arriving in zip(ranks(2)(in_lines, rows_read, cfg), (15, 14)):
        assert rank["buffer_bytes"] == [arriving * WIDTH * 8, arriving * LINE * 8]
