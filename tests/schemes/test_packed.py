"""Rows that travel side by side: one all-to-all a piece, the same sums, and nothing for each pair of ranks."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fullgnn.config import Config
from fullgnn.distributed import Axis, Work, World
from fullgnn.engine.step_runner import StepRunner
from fullgnn.errors import ConfigError
from fullgnn.schemes.multiplication import DistributedMultiplication
from fullgnn.schemes.options import SchemeOptions
from fullgnn.schemes.packed import PackedExchange
from fullgnn.schemes.pieces import cut_columns, packed_pieces
from fullgnn.schemes.push import PackedPush
from tests.cases import config, dense_graph, layout_overrides
from tests.models.exactness import case as model_case
from tests.models.exactness import compare, distributed, expected
from tests.schemes.row_exchange import repeated
from tests.schemes.training import (
    assert_one_step_is_exact,
    difference,
    expected_step,
    in_lines,
    one_step,
    one_step_in_triton,
    only_product,
    prepare,
    traced_product,
)
from tests.triton_device import needs_triton

WIDTH = 24  # columns of three lines of a CPU
CASE = ["model.dropout=0.4", "model.num_layers=3", f"model.hidden_channels={WIDTH}", "seed=3", "runtime.dtype=float64"]

ONE, BY_STAGES, BY_COLUMNS = "null", "8", "5"
"""Rows of a piece: any number; those of about one stage of ``dense_graph`` on four ranks; a third of one on two."""


def packed(replication: int, piece_rows: str, *overrides: str) -> Config:
    keys = ["scheme.fetch=packed", f"scheme.piece_rows={piece_rows}"]
    return config(*layout_overrides(replication), *CASE, *keys, *overrides)


def test_a_budget_joins_stages_and_cuts_columns() -> None:
    rows = np.array([[0, 4, 4, 9, 1], [0, 6, 2, 3, 3]])  # of two ranks, by the place of the stage
    for piece_rows, groups, slices in (
        (18, [0, 0, 0, 0, 0], [1]),
        (17, [0, 0, 0, 0, 1], [1, 1]),
        (10, [0, 0, 0, 1, 1], [1, 1]),
        (5, [0, 0, 1, 2, 3], [2, 1, 2, 1]),
        (3, [0, 0, 1, 2, 3], [2, 2, 3, 1]),
    ):
        pieces = packed_pieces(rows, piece_rows)
        assert (pieces.groups, pieces.slices) == (groups, slices), piece_rows


@pytest.mark.parametrize("width", [1, 7, 8, 41, 602])
@pytest.mark.parametrize("num_slices", [1, 2, 3, 100])
def test_slices_of_columns_begin_at_lines(width: int, num_slices: int) -> None:
    slices = cut_columns(width, num_slices, 8)
    assert [column for columns in slices for column in range(columns.start, columns.stop)] == list(range(width))
    assert all(columns.start % 8 == 0 and columns.stop > columns.start for columns in slices)
    assert len(slices) == min(num_slices, -(-width // 8))


def num_pieces(world: World, cfg: Config, kind: str) -> tuple[int, int]:
    """The all-to-alls of one product with ``WIDTH`` columns, and those of one movement of rows."""
    _, scheme, job = prepare(world, cfg, kind)
    block, axis = job.graph.block, scheme.context.world
    names, real = list[str](), axis.all_to_all_rows
    axis.all_to_all_rows = lambda *args: (names.append(args[-1]), real(*args))[1]  # type: ignore[method-assign]
    x = torch.ones(len(block.source_id), WIDTH, dtype=torch.float64)
    only_product(job).multiply(x)
    of_product = names.count("exchange")
    block.fetch(x)
    return of_product, names.count("exchange") - of_product


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("world_size", "replication", "piece_rows", "pieces"),
    [(4, 1, ONE, (1, 1)), (4, 1, BY_STAGES, (3, 3)), (2, 1, BY_COLUMNS, (3, 1)), (4, 2, BY_COLUMNS, (3, 1))],
)
def test_three_pieces_equal_the_oracle(
    ranks, world_size: int, replication: int, piece_rows: str, pieces: tuple[int, int]
) -> None:
    """GCN, by the product; layers that read edges need all columns of a row."""
    cfg = packed(replication, piece_rows)
    assert ranks(world_size)(num_pieces, cfg, "directed") == [pieces] * world_size
    for kind in ("directed", "weighted", "tiny"):
        assert_one_step_is_exact(ranks(world_size), cfg, kind)


LAYOUTS = [(2, 1), (3, 1), (4, 1), (4, 2), (6, 3), (2, 2), (8, 4)]


@pytest.mark.sample(14)
@pytest.mark.parametrize(("world_size", "replication"), LAYOUTS)
@pytest.mark.parametrize("piece_rows", [ONE, BY_STAGES, "2"])
def test_a_step_equals_the_oracle(ranks, world_size: int, replication: int, piece_rows: str) -> None:
    cases = [("true", "scheme.exchange=needed_rows"), ("false", "kernel=torch"), ("true", "model.input_dropout=0")]
    for split, *overrides in cases:
        cfg = packed(replication, piece_rows, f"scheme.split_rows={split}", "normalization=row", *overrides)
        for kind in ("symmetric", "isolated", "corner", "weighted"):
            assert_one_step_is_exact(ranks(world_size), cfg, kind)


@pytest.mark.sample(12)
@pytest.mark.parametrize("model", ["gat", "gatv2", "sage"])
@pytest.mark.parametrize(("world_size", "replication"), [(4, 1), (4, 2), (6, 3), (3, 1)])
@pytest.mark.parametrize("piece_rows", [ONE, BY_STAGES])
def test_layers_that_read_edges_equal_the_dense_block(
    ranks, model: str, world_size: int, replication: int, piece_rows: str
) -> None:
    own = ["model.aggregation=max"] if model == "sage" else []
    for split in ("true", "false"):
        keys = ["scheme.fetch=packed", f"scheme.piece_rows={piece_rows}", f"scheme.split_rows={split}", *own]
        cfg = model_case(model, "1d" if replication == 1 else "1.5d", replication, *keys)
        for kind in ("directed", "tiny"):
            of_ranks = ranks(world_size)(distributed, cfg, kind, False)
            compare(of_ranks, expected(cfg, kind, False), 1e-10, (kind, split))


@pytest.mark.parametrize("piece_rows", [ONE, BY_STAGES])
def test_repeated_gradients_have_the_same_bits(ranks, piece_rows: str) -> None:
    cfg = packed(1, piece_rows)
    for rank in ranks(4)(repeated, cfg):
        assert rank == [rank[0]] * 3


def test_rows_in_lines_as_on_a_gpu_equal_the_oracle(ranks) -> None:
    for piece_rows, exchange in ((ONE, "auto"), (BY_STAGES, "needed_rows")):
        cfg = packed(1, piece_rows, f"scheme.exchange={exchange}", "model.hidden_channels=7")
        for arrays in ranks(4)(in_lines, one_step, cfg, "directed"):
            assert difference(arrays, expected_step(cfg, "directed")) < 1e-11


@needs_triton
@pytest.mark.sample(2)
@pytest.mark.parametrize(("world_size", "replication"), [(4, 1), (4, 2)])
def test_kernels_in_triton_equal_the_oracle(ranks, world_size: int, replication: int) -> None:
    """The product takes slices of columns, whose output is part of wider rows."""
    cfg = packed(replication, BY_COLUMNS, "kernel=csr", "model.num_layers=2", "optimizations.loss_rows_only=true")
    assert_one_step_is_exact(ranks(world_size), cfg, "directed", one_step_in_triton)


def by_host(world: World, cfg: Config, kind: str) -> dict[str, np.ndarray]:
    """``one_step`` of ranks whose rows go by the host, as those of ranks that share a GPU."""
    real = Axis.__init__

    def made(self, *args) -> None:
        real(self, *args)
        self._by_host = True

    Axis.__init__ = made  # type: ignore[method-assign]
    try:
        return one_step(world, cfg, kind)
    finally:
        Axis.__init__ = real  # type: ignore[method-assign]


def test_rows_that_go_by_the_host_equal_the_oracle(ranks) -> None:
    for replication, piece_rows in ((1, BY_STAGES), (2, ONE)):
        assert_one_step_is_exact(ranks(4), packed(replication, piece_rows), "directed", by_host)


STEPS = {
    (PackedExchange, "_send"): "send",
    (Work, "wait"): "wait",
    (DistributedMultiplication, "multiply_slice"): "multiply",
}
"""``send`` of a piece, ``wait`` for it, ``multiply``."""


def test_a_piece_travels_while_what_came_before_it_multiplies(ranks) -> None:
    """Also the last one: without replicas, nothing is summed afterwards."""
    for piece_rows, between in ((ONE, []), (BY_STAGES, 2 * ["wait", "send", "multiply"])):
        for trace in ranks(4)(traced_product, packed(1, piece_rows), "directed", STEPS, WIDTH):
            assert trace == ["send", "multiply", *between, "wait", "multiply"]


class Launches(TorchDispatchMode):
    """Counts operations by name."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.found[str(func)] += 1
        return func(*args, **(kwargs or {}))


def launches_of_a_step(world: World, cfg: Config, kind: str) -> dict[str, Any]:
    """The operations of the second step on this rank, and how many products, exchanges and pushes it has."""
    _meter, _scheme, job = prepare(world, cfg, kind)
    runner = StepRunner(job)
    runner(1)
    calls: Counter[str] = Counter()
    halo = type(job.graph.block.exchange)
    patches = [
        (DistributedMultiplication, "__call__"),
        (halo, "arrivals"),
        (PackedPush, "__init__"),
        (halo, "gather_targets"),
    ]
    patches += [(halo, "reduce")]
    originals = {(owner, name): getattr(owner, name) for owner, name in patches}
    for (owner, name), original in originals.items():

        def counted(self, *args, _original=original, _name=f"{owner.__name__}.{name}", **kwargs):
            calls[_name] += 1
            return _original(self, *args, **kwargs)

        setattr(owner, name, counted)
    try:
        with Launches() as launches:
            runner(2)
    finally:
        for (owner, name), original in originals.items():
            setattr(owner, name, original)
    return {"calls": dict(calls), "launches": dict(launches.found)}


@pytest.mark.sample(2)
@pytest.mark.parametrize("model", ["gcn", "gat"])
@pytest.mark.parametrize(("piece_rows", "pieces"), [(ONE, 1), (BY_STAGES, 3)])
def test_a_piece_is_one_launch_and_one_collective(ranks, model: str, piece_rows: str, pieces: int) -> None:
    """Four ranks, with one all-to-all and one ``index_select`` a piece; the gradients need no packing."""
    keys = ["runtime.dtype=float64", "scheme=1d", "scheme.fetch=packed", f"scheme.piece_rows={piece_rows}"]
    cfg = config(f"model={model}", *keys, "optimizations.loss_rows_only=false")
    for rank in ranks(4)(launches_of_a_step, cfg, "directed"):
        calls, launches = rank["calls"], rank["launches"]
        pushes = calls.get("PackedPush.__init__", 0)
        moved = calls.get("DistributedMultiplication.__call__", 0) + calls.get("Halo.arrivals", 0)
        assert moved >= 3 and (pushes >= 2) == (model == "gat")
        assert launches["c10d.alltoall_base_.default"] == pieces * (moved + pushes)
        assert launches["aten.index_select.out"] == pieces * moved
        assert not {"c10d.send.default", "c10d.recv_.default", "aten.index_add_.default"} & set(launches)
        assert launches["c10d.allreduce_.default"] == 1


def test_replicas_join_by_one_collective(ranks) -> None:
    """GAT on 2 x 2 ranks: rows of targets are gathered, and sums reduced, by one all-to-all each."""
    keys = ["runtime.dtype=float64", *layout_overrides(2), "scheme.fetch=packed"]
    cfg = config("model=gat", *keys, "optimizations.loss_rows_only=false")
    for rank in ranks(4)(launches_of_a_step, cfg, "directed"):
        calls, launches = rank["calls"], rank["launches"]
        joined = calls["Halo.gather_targets"] + calls["Halo.reduce"]
        moved = calls["Halo.arrivals"] + calls["PackedPush.__init__"]
        assert joined and launches["c10d.alltoall_base_.default"] == joined + moved
        assert not {"c10d.send.default", "c10d.recv_.default"} & set(launches)


def test_ranks_without_rows_take_part(ranks) -> None:
    assert len(dense_graph("tiny").adj) == 3
    assert_one_step_is_exact(ranks(8), packed(1, ONE), "tiny")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"fetch": "packed", "stage_order": "broadcast"}, "scheme.stage_order=diagonal"),
        ({"fetch": "packed", "exchange": "broadcast"}, "scheme.exchange=auto"),
        ({"fetch": "packed", "piece_rows": 0}, "at least 1, or null"),
        ({"fetch": "whole", "piece_rows": 5}, "leave out scheme.piece_rows"),
    ],
)
def test_keys_that_do_not_fit_are_named(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        SchemeOptions(**keys)


@pytest.mark.parametrize(
    ("keys", "fetch"),
    [
        ({}, "packed"),
        ({"exchange": "needed_rows"}, "packed"),
        ({"exchange": "broadcast"}, "auto"),
        ({"stage_order": "broadcast"}, "auto"),
        ({"fetch": "stages"}, "stages"),
        ({"fetch": "whole"}, "whole"),
    ],
)
def test_on_a_gpu_rows_are_packed_unless_a_key_asks_for_another_way(keys: dict[str, Any], fetch: str) -> None:
    assert SchemeOptions(replication=1, **keys).grid_on(torch.device("cuda"), 4).fetch == fetch
    assert SchemeOptions(replication=1, **keys).grid_on(torch.device("cpu"), 4).fetch == keys.get("fetch", "auto")
