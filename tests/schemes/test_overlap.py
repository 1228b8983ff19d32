"""The order of communication and multiplication within one product."""

import pytest
import torch

from fullgnn.config import Config
from fullgnn.distributed import World
from fullgnn.schemes.exchange import Exchange
from fullgnn.schemes.operator import Operator, _Reduction
from tests.cases import config, layout_overrides
from tests.schemes.training import only_product, prepare

STAGES = "scheme.fetch=stages"  # also on GPUs


def traced_product(world: World, cfg: Config) -> list[str]:
    """The events of one product on this rank, in order: ``start`` of a step, ``multiply``, ``send`` of a slice."""
    _, _, job = prepare(world, cfg, "symmetric")
    trace: list[str] = []
    patches = {(Exchange, "_start"): "start", (Operator, "_multiply"): "multiply", (_Reduction, "send"): "send"}
    originals = {place: getattr(*place) for place in patches}
    for (owner, name), word in patches.items():

        def traced(self, *args, _original=originals[owner, name], _word=word):
            trace.append(_word)
            return _original(self, *args)

        setattr(owner, name, traced)
    try:
        x = torch.ones(len(job.graph.block.source_id), 4, dtype=torch.float64)
        only_product(job).multiply(x)
        assert torch.equal(x, torch.ones_like(x))  # sending rows does not change them
    finally:
        for (owner, name), original in originals.items():
            setattr(owner, name, original)
    return trace


@pytest.mark.parametrize("stage_order", ["diagonal", "broadcast"])
@pytest.mark.parametrize("exchange", ["broadcast", "needed_rows"])
def test_the_next_rows_travel_while_a_block_multiplies(ranks, stage_order: str, exchange: str) -> None:
    choices = [f"scheme.stage_order={stage_order}", f"scheme.exchange={exchange}", "scheme.shared_memory=false", STAGES]
    cfg = config("scheme=1d", *choices, "runtime.dtype=float64")
    for trace in ranks(3)(traced_product, cfg):
        assert trace == ["start", "start", "multiply", "start", "multiply", "multiply", "send"]


def test_slices_are_sent_while_the_others_multiply(ranks) -> None:
    cfg = config(*layout_overrides(3), "runtime.dtype=float64", STAGES)
    traces = [trace for trace in ranks(6)(traced_product, cfg) if "multiply" in trace]
    assert len(traces) == 4  # two stages for three replicas
    for trace in traces:
        assert trace[-6:] == ["multiply", "send"] * 3


@pytest.mark.parametrize(("world_size", "replication"), [(2, 2), (8, 4)])
def test_a_replica_without_stages_contributes_zero(ranks, world_size: int, replication: int) -> None:
    cfg = config(*layout_overrides(replication), "runtime.dtype=float64", STAGES)
    traces = ranks(world_size)(traced_product, cfg)
    assert any("multiply" not in trace for trace in traces)
    assert all(trace.count("send") == replication for trace in traces)
