"""The row exchange of a block brings the right rows, and each one's adjoint is its exact transpose.

All numbers are small whole numbers, so that every sum is exact in float64 and comparisons are of bits.
"""

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from fullgnn.config import Config
from fullgnn.distributed import World
from fullgnn.errors import DataError
from fullgnn.graph import EdgeSet
from fullgnn.kernels.spmm import LocalCSR
from tests.cases import LAYOUTS, config, dense_graph, layout_overrides
from tests.schemes.row_exchange import WIDTH, blocks_of, gradient, repeated, whole

CHOICES = [
    {
        "scheme.stage_order": order,
        "scheme.exchange": exchange,
        "scheme.split_rows": split,
        "scheme.shared_memory": shared,
    }
    for order, exchange, split, shared in product(
        ("diagonal", "broadcast"), ("broadcast", "needed_rows", "auto"), ("true", "false"), ("true", "false")
    )
]
CHOICES += [choice | {"scheme.fetch": "whole"} for choice in CHOICES if choice["scheme.stage_order"] == "diagonal"]
CHOICES += [
    {"scheme.fetch": "packed", "scheme.piece_rows": piece_rows, "scheme.split_rows": split}
    for piece_rows, split in product(("null", "5"), ("true", "false"))
]


def as_scipy(stage: LocalCSR) -> csr_array:
    values = torch.ones(stage.nnz, dtype=torch.float64) if stage.values is None else stage.values
    arrays = (tensor.cpu().numpy() for tensor in (values, stage.indices, stage.indptr))
    return csr_array(tuple(arrays), shape=(stage.num_rows, stage.num_cols))


def moved(world: World, cfgs: list[Config], kind: str) -> list[dict[str, dict[str, Any]]]:
    """What each movement brings, and what its adjoint returns, for both blocks of each configuration."""
    outcomes = []
    for cfg in cfgs:
        outcome: dict[str, dict[str, Any]] = {}
        for name, block in blocks_of(world, cfg, kind).items():
            sources = block.stage_source_id
            edges = [as_scipy(stage.csr) for stage in block.stages(EdgeSet())]
            x = torch.from_numpy(whole(0, 29)).to(world.device)[block.source_id].requires_grad_()
            own = torch.from_numpy(whole(1, 29)).to(world.device)[block.own_id].requires_grad_()
            num_targets = len(block.target_id)
            partial = torch.from_numpy(whole((2, world.rank), num_targets)).to(world.device).requires_grad_()
            ids = torch.from_numpy(np.random.default_rng((3, world.rank)).integers(0, 29, 7 * world.rank)).to(
                world.device
            )
            outputs = {
                "fetch": (block.fetch(x), x),
                "fetch_targets": (block.fetch_targets(own), own),
                "reduce": (block.reduce(partial), partial),
                "fetch_rows": (block.fetch_rows(x, ids), x),
            }
            backward = {key: gradient(y, of, (4, world.rank), world.device) for key, (y, of) in outputs.items()}
            outcome[name] = {
                "forward": {key: y.detach().cpu().numpy() for key, (y, _) in outputs.items()},
                "arriving": {key: arriving for key, (arriving, _) in backward.items()},
                "backward": {key: returned for key, (_, returned) in backward.items()},
                "source_id": block.source_id.cpu().numpy(),
                "own_id": block.own_id.cpu().numpy(),
                "target_id": block.target_id.cpu().numpy(),
                "own": block.own,
                "stage_source_id": [ids.cpu().numpy() for ids in sources],
                "edges": edges,
                "ids": ids.cpu().numpy(),
                "partial": partial.detach().cpu().numpy(),
                "at_targets": block.at_targets(x).detach().cpu().numpy(),
            }
        outcomes.append(outcome)
    return outcomes


def summed(pairs: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """(29, WIDTH) sum of the rows of each pair (ids, rows) by id."""
    total = np.zeros((29, WIDTH))
    for ids, rows in pairs:
        np.add.at(total, ids, rows)
    return total


def check(of_ranks: list[dict[str, Any]], dense: np.ndarray, rows: np.ndarray, copies: int, replication: int) -> None:
    """Compare one block of every rank with what the dense graph says.

    Args:
        dense: the stored adjacency; ``rows``: ascending ids of the targets.
        copies: how many ranks hold the same rows.
    """
    x, own = whole(0, 29), whole(1, 29)
    edges = np.zeros((29, 29))
    for rank in of_ranks:
        np.testing.assert_array_equal(rank["own_id"], rank["target_id"][rank["own"]])
        np.testing.assert_array_equal(rank["at_targets"], x[rank["own_id"]])
        np.testing.assert_array_equal(
            rank["forward"]["fetch"], x[np.concatenate([np.empty(0, int), *rank["stage_source_id"]])]
        )
        np.testing.assert_array_equal(rank["forward"]["fetch_targets"], own[rank["target_id"]])
        np.testing.assert_array_equal(rank["forward"]["fetch_rows"], x[rank["ids"]])
        for stage, sources in zip(rank["edges"], rank["stage_source_id"], strict=True):
            stage = stage.tocoo()
            np.add.at(edges, (rank["target_id"][stage.row], sources[stage.col]), stage.data)
    np.testing.assert_array_equal(edges[rows], dense[rows])  # every edge is in one stage of one rank
    assert not np.delete(edges, rows, axis=0).any()
    assert sorted(np.concatenate([rank["own_id"] for rank in of_ranks])) == sorted(rows.tolist() * copies)

    partial = summed([(rank["target_id"], rank["partial"]) for rank in of_ranks])
    fetched = summed(
        [(np.concatenate([np.empty(0, int), *rank["stage_source_id"]]), rank["arriving"]["fetch"]) for rank in of_ranks]
    )
    named = summed([(rank["ids"], rank["arriving"]["fetch_rows"]) for rank in of_ranks])
    gathered = summed([(rank["target_id"], rank["arriving"]["fetch_targets"]) for rank in of_ranks])
    for rank in of_ranks:
        np.testing.assert_array_equal(rank["forward"]["reduce"], partial[rank["own_id"]])
        np.testing.assert_array_equal(rank["backward"]["fetch"], fetched[rank["source_id"]])
        np.testing.assert_array_equal(rank["backward"]["fetch_rows"], named[rank["source_id"]])
        np.testing.assert_array_equal(rank["backward"]["fetch_targets"], gathered[rank["own_id"]])
    if copies == 1:
        reduced = summed([(rank["own_id"], rank["arriving"]["reduce"]) for rank in of_ranks])
        for rank in of_ranks:
            np.testing.assert_array_equal(rank["backward"]["reduce"], reduced[rank["target_id"]])
    for key in ("fetch", "fetch_targets"):
        in_ = {"fetch": (x, "source_id"), "fetch_targets": (own, "own_id")}[key]
        forward = sum((rank["forward"][key] * rank["arriving"][key]).sum() for rank in of_ranks)
        backward = sum((in_[0][rank[in_[1]]] * rank["backward"][key]).sum() for rank in of_ranks) / copies
        assert forward == backward  # <fetch(x), y> = <x, push_add(y)>


@pytest.mark.parametrize(("world_size", "replication"), LAYOUTS)
@pytest.mark.parametrize("kind", ["directed", "weighted", "corner"])
@pytest.mark.sample(26)
def test_every_way_of_the_exchange_and_its_adjoint(
    ranks, world_size: int, replication: int, kind: str, every_case: bool
) -> None:
    choices = [choice for choice in CHOICES if world_size > 1 or choice == CHOICES[0]]
    step, turn = 2 if every_case else 6, LAYOUTS.index((world_size, replication)) + (kind == "weighted")
    chosen = choices[turn % min(step, len(choices)) :: step]
    overrides = [[f"{key}={value}" for key, value in choice.items()] for choice in chosen]
    cfgs = [config(*layout_overrides(replication), "runtime.dtype=float64", *own) for own in overrides]
    graph, outcomes = dense_graph(kind), ranks(world_size)(moved, cfgs, kind)
    for number, choice in enumerate(chosen):
        copies = 1 if choice["scheme.split_rows"] == "true" else replication
        targets = {"all": np.arange(29), "loss": np.flatnonzero(graph.train_mask)}
        for name, rows in targets.items():
            check([rank[number][name] for rank in outcomes], graph.adj, rows, copies, replication)


@pytest.mark.parametrize("exchange", ["broadcast", "needed_rows"])
@pytest.mark.parametrize("shared", ["true", "false"])
def test_a_repeated_adjoint_has_the_same_bits(ranks, exchange: str, shared: str) -> None:
    own = [f"scheme.exchange={exchange}", f"scheme.shared_memory={shared}", "scheme.stage_order=broadcast"]
    cfg = config("scheme=1d", "runtime.dtype=float64", *own)
    for rank in ranks(4)(repeated, cfg):
        assert rank == [rank[0]] * 3


def unknown_node(world: World, cfg: Config) -> str:
    block = blocks_of(world, cfg, "symmetric")["all"]
    ids = torch.tensor([5, 29] if world.rank == 1 else [3])
    try:
        block.fetch_rows(torch.zeros(len(block.source_id), 1, dtype=torch.float64), ids)
    except DataError as error:
        return str(error)
    return ""


def test_a_node_that_is_not_there_is_named_on_every_rank(ranks) -> None:
    cfg = config("scheme=1d", "runtime.dtype=float64")
    line = "node 29 is not in the graph: its original ids are 0 to 28"
    assert ranks(3)(unknown_node, cfg) == [line] * 3
