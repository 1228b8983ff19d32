"""Each user error on the command line gives one line, which names the error and its cure."""

import pytest

from fullgnn.bench.config import BenchConfig, load_bench, preset_config, presets
from fullgnn.errors import ConfigError

WRONG = {
    "op=foo": "op=foo is not known: choose one of spmm, epoch, collectives, reorder",
    "op=null": "op does not fit: it takes a text",
    "~op": "op cannot be removed: leave out ~op",
    "op=spmm,epoch": "op=spmm,epoch gives several values: run once for each",
    "graph=cor": "graph=cor is not known: choose one of reddit-mini, products-mini, proteins-mini, tiny, ",
    "gnn=mlp": "gnn=mlp is not known: choose one of gcn, sage, sage-max, gin, gat, gatv2, sgc",
    "op=epoch gnn=gatv2 hidden=60": "hidden=60 columns are not those of 8 heads",
    "op=epoch batch_size=8": "batch_size is for gnn=lightgcn, and gnn=gcn has one step an epoch: leave it out",
    "op=epoch gnn=gat hidden=60": "hidden=60 columns are not those of 8 heads: give a multiple of 8",
    "order=mets": "order=mets is not known: choose one of degree, ",
    "epoch=3": "unknown key epoch: did you mean epochs?",
    "+foo=1": "unknown key foo: the keys are op, gnn, graph, ",
    "widths=3": "widths does not fit: it takes a list, each element an integer, as in [a,b]",
    "widths=[a]": "widths does not fit: it takes a list, each element an integer",
    "widths=[]": "widths=[] leaves nothing to measure",
    "widths=[0]": "widths=0 is out of range: it must be at least 1",
    "widths=[8,16,8]": "widths names something twice: leave one out",
    "rounds=x": "rounds does not fit: it takes an integer",
    "rounds=0": "rounds=0 is out of range: it must be at least 1",
    "budget_s=nan": "budget_s=nan is out of range",
    "threads": "argument threads cannot be read",
    "device=gpu": "device=gpu is not known: choose one of cpu, cuda, auto",
    "malloc=other": "malloc=other is not known: choose one of tuned, default",
    "peers=[jax]": "peers=jax is not known: choose one of torch, pyg, dgl",
    "kernels=[a]": "kernels=a is not known: choose one of ",
    "presets=[nobody]": "presets=nobody is not known: choose one of ",
    "op=epoch epochs=1": "epochs=1 are all warm-up: give more than warmup=1",
    "op=collectives": "op=collectives moves data between processes: give nproc=2 or more",
    "op=spmm nproc=2": "op=spmm runs in one process: leave out nproc=2",
    "op=epoch alone_threads=[1,2]": "alone and alone_threads are for nproc of 2 or more",
    "op=epoch nproc=2 presets=[default] alone=[full]": "alone=full is not known: choose one of default",
}


@pytest.mark.sample(4)
@pytest.mark.parametrize("overrides", WRONG)
def test_a_mistake_is_one_line(overrides: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_bench(*overrides.split())
    message = str(caught.value)
    assert message.startswith(WRONG[overrides])
    assert "\n" not in message


def test_the_defaults_are_complete() -> None:
    cfg = load_bench()
    assert isinstance(cfg, BenchConfig)
    assert (cfg.op, cfg.graph, cfg.nproc) == ("spmm", "reddit-mini", 1)
    assert cfg.out.startswith("runs/bench/spmm-reddit-mini-")


def test_the_presets_are_the_experiments() -> None:
    assert presets() == ["cagnet-1.5d", "cagnet-1d", "full", "hetu", "hetu-reorder"]


@pytest.mark.parametrize("preset", [*presets(), "default", "default train.epochs=3"])
def test_every_preset_does_the_same_task(preset: str) -> None:
    cfg = preset_config(load_bench("op=epoch", "threads=1", "nproc=2", "seed=3"), preset, hidden=24)
    assert cfg.model["hidden_channels"] == 24 and cfg.model["dropout"] == cfg.model["input_dropout"] == 0
    assert [cfg.optimizer[key] for key in ("name", "lr", "weight_decay")] == ["adam", 0.01, 0]
    assert (cfg.runtime.threads, cfg.runtime.nproc, cfg.runtime.device, cfg.seed) == (1, 2, "cpu", 3)
