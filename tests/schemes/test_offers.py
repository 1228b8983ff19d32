"""What a scheme lacks is said before the graph is distributed, by one function, in one sentence."""

import re
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

import fullgnn
from fullgnn.config import Config
from fullgnn.distributed import World
from fullgnn.engine import set_up
from fullgnn.errors import ConfigError
from fullgnn.graph import EdgeSet
from fullgnn.schemes import BlockRequest, Offers
from fullgnn.schemes.base import CHOOSE_SCHEME, check_offers
from fullgnn.schemes.one_and_half_d import OneAndHalfD
from fullgnn.telemetry.meter import Meter
from tests.cases import config

ALL = Offers(edges=True, pairs=True, loss_rows=True, joins_rows=True)
LACKS = {
    "edges": (BlockRequest((), edges=(EdgeSet(),)), "model=m reads the edges of the graph"),
    "pairs": (BlockRequest((), pairs=True), "task=t reads rows of other ranks by their ids"),
    "joins_rows": (BlockRequest((), joins_rows=True), "model=m adds up what all ranks find for their rows"),
}


@pytest.mark.parametrize("what", LACKS)
def test_what_is_lacking_is_refused(what: str) -> None:
    request, line = LACKS[what]
    with pytest.raises(ConfigError, match=f"^{line}, and scheme=s multiplies only: {CHOOSE_SCHEME}$"):
        check_offers(request, replace(ALL, **{what: False}), "m", "t", "s")
    check_offers(request, Offers(**{what: True}), "m", "t", "s")  # nothing else is asked for
    check_offers(BlockRequest((), loss_rows=True), Offers(), "m", "t", "s")  # all rows are computed


CASES = {
    "edges": ["model=gat"],
    "pairs": ["model=lightgcn", "task=link_prediction"],
    "joins_rows": ["model.norm=batch"],
}


def refused(world: World, cfg: Config, what: str) -> str:
    """The error of a scheme that does not offer ``what``, and that fails if a graph is distributed."""
    less = replace(OneAndHalfD.offers, **{what: False})
    with mock.patch.multiple(OneAndHalfD, offers=less, shard=None), pytest.raises(ConfigError) as raised:
        set_up(cfg, world, Meter(world.device))
    return str(raised.value)


def test_a_run_is_refused_before_the_graph_is_distributed(ranks) -> None:
    for what, keys in CASES.items():
        (line,) = ranks(1)(refused, config("dataset=karate", "scheme=1d", *keys), what)
        assert line.endswith(f"and scheme=1d multiplies only: {CHOOSE_SCHEME}"), line


def test_the_cure_is_written_once() -> None:
    files = Path(fullgnn.__file__).parent.rglob("*.py")
    names = [path.name for path in files for _ in re.findall("scheme=1d or ", path.read_text())]
    assert names == ["base.py"]
