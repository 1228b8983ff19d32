"""Blocks of sampled hops against dense matrices, and every model on them, with gradients."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch import Tensor

from fullgnn.config import build
from fullgnn.graph import EdgeSet, Propagation
from fullgnn.nn import MessageConv, contract_of, set_epoch
from fullgnn.nn.contract import block_request
from fullgnn.sampling.blocks import BlockMaker
from fullgnn.sampling.hop import Hop
from fullgnn.sampling.neighbors import ALL
from fullgnn.sampling.rows import HopEdges, with_self_loops, with_self_loops_torch
from fullgnn.schemes import Block, BlockProduct, BlockRequest
from fullgnn.schemes.edges import Stage
from fullgnn.schemes.multiplication import local_csr
from fullgnn.schemes.row_exchange import ONE_RANK, RowExchange
from tests.cases import config
from tests.dense_block import DenseMultiplication
from tests.gpu_code.host_waits import HostWaits
from tests.oracle import normalize
from tests.sampling.blocks import CPU, NUM_CLASSES, NUM_FEATURES, NUM_NODES, Case, dense_product, drawn_edges

EVERY = BlockRequest(
    tuple(Propagation(name, loops) for name in ("sym", "row", "none") for loops in (True, False)),
    edges=(EdgeSet(True), EdgeSet(False)),
)
MODELS = {
    "gcn": [],
    "sage": [],
    "sage max": ["model.aggregation=max"],
    "gat": ["model.heads=2", "model.attention_dropout=0.3"],
    "gatv2": ["model.heads=2"],
    "gin": [],
    "gin jumping": ["model.jumping_knowledge=cat", "model.residual=true", "model.norm=layer"],
    "gcn batch": ["model.norm=batch", "model.num_layers=3"],
    "appnp": ["model.num_hops=3"],
    "gcnii": ["model.num_layers=3"],
    "sgc": ["model.num_hops=3"],
    "ngcn": ["model.num_powers=3"],
    "mlp": [],
}


def dense_block(case: Case, hop: Hop[np.ndarray], request: BlockRequest) -> Block:
    """The block that ``BlockMaker`` should make, from dense matrices; only of draws without replacement."""
    products: dict[Propagation, BlockProduct] = {}
    for propagation in request.propagations:
        matrix = torch.from_numpy(dense_product(case, hop, propagation))
        products[propagation] = BlockProduct(DenseMultiplication(matrix), DenseMultiplication(matrix.T))
    ids, edges = hop.sources, {}
    rows = {int(v): i for i, v in enumerate(ids[hop.target_index])}
    place = {int(v): i for i, v in enumerate(ids)}
    for edge_set in request.edges:
        stored, factors = np.zeros((hop.num_targets, len(ids))), np.zeros((hop.num_targets, len(ids)))
        for v, u, weight, factor in drawn_edges(case, hop):
            stored[rows[v], place[u]], factors[rows[v], place[u]] = weight, factor
        if edge_set.self_loops:
            for v, i in rows.items():
                stored[i, place[v]] = factors[i, place[v]] = 1
        csr = local_csr(csr_array(stored), case.graph.weight is None, CPU)
        numbers = torch.from_numpy(csr_array(factors).data)
        edges[edge_set] = (Stage(csr, partial(torch.clone, numbers)),)
    return Block(
        torch.from_numpy(ids.astype(np.int64)),
        products,
        torch.from_numpy(hop.target_index.astype(np.int64)),
        row_exchange=partial(RowExchange, len(ids), hop.num_targets),
        edges=edges,
        ranks=ONE_RANK,
    )


@pytest.mark.sample(5)
@pytest.mark.parametrize("weighted", [False, True], ids=["pattern", "weights"])
@pytest.mark.parametrize("by_weight", [False, True], ids=["uniform", "by weight"])
@pytest.mark.parametrize("replace", [False, True], ids=["without", "with"])
@pytest.mark.parametrize("fanout", [3, ALL])
def test_products_and_edges_are_those_of_dense_matrices(
    weighted: bool, by_weight: bool, replace: bool, fanout: int
) -> None:
    if by_weight and not weighted:
        pytest.skip("a graph without weights")
    case = Case.of(weighted)
    (hop,) = case.sampler([fanout], replace, by_weight).sample(np.arange(0, NUM_NODES, 3), 1)
    block = BlockMaker(case.host(EVERY), EVERY, torch.float64, CPU).block(hop)
    assert block.source_id.tolist() == hop.sources.tolist() and block.own_id.tolist() == list(range(0, NUM_NODES, 3))
    for propagation in EVERY.propagations:
        wanted = torch.from_numpy(dense_product(case, hop, propagation))
        product = block.product(propagation)
        forward = product.multiply(torch.eye(len(hop.sources), dtype=torch.float64))
        backward = product.multiply_t(torch.eye(hop.num_targets, dtype=torch.float64))
        torch.testing.assert_close(forward, wanted, rtol=1e-13, atol=1e-14)
        torch.testing.assert_close(backward, wanted.T, rtol=1e-13, atol=1e-14)
        if fanout == ALL and not replace:
            full = normalize(case.adj, propagation.normalization, propagation.self_loops)
            assert np.allclose(wanted, full[::3][:, hop.sources])
    for edge_set in EVERY.edges:
        (stage,) = block.stages(edge_set)
        csr, edges = stage.csr, drawn_edges(case, hop)
        if edge_set.self_loops:
            edges = [(v, v, 1.0, 1.0) for v in block.own_id.tolist()] + [edge for edge in edges if edge[0] != edge[1]]
        target = block.own_id.repeat_interleave(csr.indptr.diff().long())
        values = torch.ones(csr.nnz) if csr.values is None else csr.values
        assert stage.factor is not None
        numbers = target, block.source_id[csr.indices.long()], values, stage.factor
        entries = sorted(zip(*(column.tolist() for column in numbers)))
        assert np.allclose(entries, sorted(edges))


@pytest.mark.parametrize("weighted", [False, True], ids=["pattern", "weights"])
@pytest.mark.parametrize("fanout", [3, ALL])
def test_torch_operations_compute_the_bits_of_the_compiled_loops(weighted: bool, fanout: int) -> None:
    case = Case.of(weighted)
    (hop,) = case.sampler([fanout], weighted=weighted).sample(np.arange(0, NUM_NODES, 3), 1)
    tensors, weight = hop.tensors(), case.graph.weight
    arrays = torch.from_numpy(case.graph.indptr.astype(np.int64)), None if weight is None else torch.from_numpy(weight)
    edges = HopEdges(tensors, *arrays, lambda tensor, dtype=None: tensor)
    assert torch.equal(edges.row_factor, edges.row_factor_torch())
    for array, wanted in zip(with_self_loops_torch(tensors), with_self_loops(tensors), strict=True):
        assert array.dtype == wanted.dtype and torch.equal(array, wanted)
    rng = np.random.default_rng(5)
    row, col = (torch.from_numpy(rng.random(count)) for count in (hop.num_targets, len(hop.sources)))
    for rows in (edges.rows(False), edges.rows(True)):
        for scales in ((None, None), (row, None), (None, col), (row, col)):
            for numbers in ((edges.weights, tensors.factors, edges.row_factor), (None, None, None)):
                wanted = rows.entries(torch.float64, *numbers, *scales)
                assert torch.equal(rows.entries_torch(*numbers, *scales), wanted)


@pytest.mark.parametrize("num_targets", [0, 1, 14])
def test_counted_loops_spare_a_wait(num_targets: int) -> None:
    case = Case.of(weighted=False)
    (hop,) = case.sampler([ALL]).sample(np.arange(num_targets), 1)
    tensors = hop.tensors()
    num_loops = np.trace(case.adj[:num_targets, :num_targets] != 0)
    with HostWaits([tensors.indptr, tensors.indices, tensors.target_index]) as waits:
        arrays = with_self_loops_torch(replace(tensors, num_loops=int(num_loops)))
    assert waits.counts == {}
    for array, wanted in zip(arrays, with_self_loops(tensors), strict=True):
        assert array.dtype == wanted.dtype and torch.equal(array, wanted)


def gradients(model: torch.nn.Module, x: Tensor, blocks: list[Block], weight: Tensor) -> list[Tensor]:
    """The output, and the gradients of a weighted sum of it at the input and at each parameter."""
    model.zero_grad()
    x = x.clone().requires_grad_()
    out = model(x, blocks)
    (out * weight).sum().backward()
    assert x.grad is not None
    return [out.detach(), x.grad, *(p.grad for p in model.parameters() if p.grad is not None)]


@pytest.mark.sample(14)
@pytest.mark.parametrize("weighted", [False, True], ids=["pattern", "weights"])
@pytest.mark.parametrize("name", MODELS)
def test_models_on_sampled_blocks_are_those_on_dense_ones(name: str, weighted: bool) -> None:
    case = Case.of(weighted)
    cfg = config(f"model={name.partition(' ')[0]}", "runtime.dtype=float64", *MODELS[name])
    torch.set_default_dtype(torch.float64)
    try:
        model = build(cfg.model, in_channels=NUM_FEATURES, out_channels=NUM_CLASSES, seed=3)
    finally:
        torch.set_default_dtype(torch.float32)
    set_epoch(model, 5)
    request, num_rows = block_request(model, cfg.optimizations), contract_of(model).num_row_blocks
    maker = BlockMaker(case.host(request), request, torch.float64, CPU, num_rows)
    features, targets = torch.tensor(case.graph.features).double(), np.array([0, 3, 7, 9, 20, 31])
    for fanouts in ([3] * (request.num_blocks - num_rows), [ALL] * (request.num_blocks - num_rows)):
        hops = case.sampler(fanouts).sample(targets, 2) if fanouts else []
        sampled = maker.blocks(hops, targets)
        assert len(sampled) == request.num_blocks
        dense = [*sampled[:num_rows], *(dense_block(case, hop, request) for hop in reversed(hops))]
        x = features[sampled[0].source_id]
        weight = torch.from_numpy(np.random.default_rng(1).standard_normal((len(targets), NUM_CLASSES)))
        for value, wanted in zip(gradients(model, x, sampled, weight), gradients(model, x, dense, weight), strict=True):
            torch.testing.assert_close(value, wanted, rtol=1e-9, atol=1e-11)


class Messages(MessageConv):
    def __init__(self, aggregation: str, self_loops: bool):
        super().__init__(aggregation, self_loops)
        self.weight = torch.nn.Parameter(torch.linspace(-1, 1, NUM_FEATURES, dtype=torch.float64))

    def message(self, x_source: Tensor, x_target: Tensor, edge_value: Tensor | None) -> Tensor:
        message = torch.tanh(x_source * self.weight - x_target)
        return message if edge_value is None else message * edge_value


@pytest.mark.sample(3)
@pytest.mark.parametrize("self_loops", [False, True], ids=["stored", "loops"])
@pytest.mark.parametrize("aggregation", ["sum", "mean", "max"])
def test_messages_on_sampled_blocks(aggregation: str, self_loops: bool) -> None:
    case, conv = Case.of(weighted=True), Messages(aggregation, self_loops)
    request = BlockRequest((), edges=(conv.edge_set,))
    (hop,) = case.sampler([3]).sample(np.arange(10), 1)
    block = BlockMaker(case.host(request), request, torch.float64, CPU).block(hop)
    edges = drawn_edges(case, hop)
    if self_loops:
        edges = [edge for edge in edges if edge[0] != edge[1]] + [(v, v, 1.0, 1.0) for v in range(10)]
    features = torch.tensor(case.graph.features).double()
    weight = torch.linspace(0, 1, 10 * NUM_FEATURES, dtype=torch.float64).view(10, NUM_FEATURES)

    def plain(x: Tensor) -> Tensor:
        rows = []
        place = {int(v): i for i, v in enumerate(hop.sources)}
        for v in range(10):
            own = [edge for edge in edges if edge[0] == v]
            made = [conv.message(x[place[u]], x[place[v]], torch.tensor(w)) for _, u, w, _ in own]
            if aggregation == "sum":
                made = [message * factor for message, (*_, factor) in zip(made, own)]
            stacked = torch.stack(made) if made else torch.zeros(1, NUM_FEATURES, dtype=torch.float64)
            join = {
                "sum": partial(torch.sum, dim=0),
                "mean": partial(torch.mean, dim=0),
                "max": partial(torch.amax, dim=0),
            }
            rows.append(join[aggregation](stacked))
        return torch.stack(rows)

    outcomes = []
    for compute in (lambda x: conv(x, block), plain):
        conv.zero_grad()
        x = features[hop.sources].clone().requires_grad_()
        out = compute(x)
        (out * weight).sum().backward()
        assert x.grad is not None and conv.weight.grad is not None
        outcomes.append((out.detach(), x.grad, conv.weight.grad))
    for result, wanted in zip(*outcomes):
        torch.testing.assert_close(result, wanted, rtol=1e-11, atol=1e-12)


def test_sums_over_drawn_neighbours_are_unbiased() -> None:
    """The mean of A X over many samples is A X of the whole graph."""
    case, request = Case.of(weighted=False), replace(EVERY, edges=())
    maker, sampler = BlockMaker(case.host(request), request, torch.float64, CPU), case.sampler([3])
    x, count = torch.tensor(case.graph.features).double(), 2_000
    sums = {kind: torch.zeros(2, NUM_NODES, NUM_FEATURES, dtype=torch.float64) for kind in request.propagations}
    for epoch in range(count):
        (hop,) = sampler.sample(np.arange(NUM_NODES), epoch)
        block = maker.block(hop)
        for kind in request.propagations:
            y = block.product(kind).spmm(x)
            sums[kind] += torch.stack([y, y * y])
    for kind, (total, squares) in sums.items():
        wanted = torch.from_numpy(normalize(case.adj, kind.normalization, kind.self_loops)) @ x
        mean = total / count
        error = ((squares / count - mean**2).clamp(min=0) / count).sqrt()
        assert ((mean - wanted).abs() <= 5 * error + 1e-9).all(), kind
