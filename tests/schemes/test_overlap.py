"""The order of communication and multiplication within one product."""

import pytest

from fullgnn.schemes.exchange import Exchange
from fullgnn.schemes.multiplication import DistributedMultiplication, _Reduction
from tests.cases import config, layout_overrides
from tests.schemes.training import traced_product

STAGES = "scheme.fetch=stages"  # also on GPUs
STEPS = {
    (Exchange, "_start"): "start",
    (DistributedMultiplication, "multiply_slice"): "multiply",
    (_Reduction, "send"): "send",
}
"""``start`` of a step, ``multiply``, ``send`` of a slice."""


@pytest.mark.parametrize("stage_order", ["diagonal", "broadcast"])
@pytest.mark.parametrize("exchange", ["broadcast", "needed_rows"])
def test_the_next_rows_travel_while_a_block_multiplies(ranks, stage_order: str, exchange: str) -> None:
    choices = [f"scheme.stage_order={stage_order}", f"scheme.exchange={exchange}", "scheme.shared_memory=false", STAGES]
    cfg = config("scheme=1d", *choices, "runtime.dtype=float64")
    for trace in ranks(3)(traced_product, cfg, "symmetric", STEPS):
        assert trace == ["start", "start", "multiply", "start", "multiply", "multiply", "send"]


def test_slices_are_sent_while_the_others_multiply(ranks) -> None:
    cfg = config(*layout_overrides(3), "runtime.dtype=float64", STAGES)
    traces = [trace for trace in ranks(6)(traced_product, cfg, "symmetric", STEPS) if "multiply" in trace]
    assert len(traces) == 4  # two stages for three replicas
    for trace in traces:
        assert trace[-6:] == ["multiply", "send"] * 3


@pytest.mark.parametrize(("world_size", "replication"), [(2, 2), (8, 4)])
def test_a_replica_without_stages_contributes_zero(ranks, world_size: int, replication: int) -> None:
    cfg = config(*layout_overrides(replication), "runtime.dtype=float64", STAGES)
    traces = ranks(world_size)(traced_product, cfg, "symmetric", STEPS)
    assert any("multiply" not in trace for trace in traces)
    assert all(trace.count("send") == replication for trace in traces)
