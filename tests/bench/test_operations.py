"""Every operation on a tiny graph: the record is complete, and its numbers follow from its times."""

import importlib.util
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest

from fullgnn.bench.config import load_bench
from fullgnn.bench.epoch import parts_alone, single_process
from fullgnn.bench.problem import load_graph
from fullgnn.bench.sampling import Ours
from fullgnn.config.keys import choices
from fullgnn.distributed import World
from fullgnn.errors import UnsupportedError
from tests.bench.operations import SHORT, operate, read

RECORD = (
    "op command config problem measurements missing world_size device backend environment hardware versions".split()
)
KINDS = {"all_reduce", "all_gather", "reduce_scatter", "all_to_all_single", "broadcast", "isend/irecv pair"}

pytestmark = pytest.mark.parametrize("ranks", ["gloo"], indirect=True)


@pytest.fixture
def operated(ranks, tmp_path: Path) -> Callable[..., dict]:
    """(overrides) -> the record of an operation, whose times are those of 3 rounds."""

    def operated(*overrides: str, size: int = 1, out: str = "out") -> dict:
        tables = ranks(size)(operate, *overrides, f"out={tmp_path / out}")
        assert tables[0] == (tmp_path / out / "table.md").read_text()
        record = read(tmp_path / out)
        check_times(record, num_rounds=3)
        return record

    return operated


def check_times(record: dict, num_rounds: int) -> None:
    """Check medians and ratios against the times of each round."""
    medians = {}
    for row in record["measurements"]:
        assert len(row["times_ms"]) == num_rounds
        assert len(row["warmup_ms"]) == record["config"]["warmup"]
        assert all(time_ms > 0 for time_ms in row["times_ms"])
        case = "".join(f", {name}={value}" for name, value in row["case"].items())
        median = statistics.median(row["times_ms"])
        medians[f"{row['method']} ({row['processes']} x {row['threads']}){case}"] = median
        assert row["median_ms"] == pytest.approx(median)
        assert min(row["times_ms"]) <= row["p20_ms"] <= median <= row["p80_ms"] <= max(row["times_ms"])
    for name, row in zip(medians, record["measurements"]):
        if row["baseline"] is not None:
            assert row["ratio"] == pytest.approx(medians[name] / medians[row["baseline"]])


def check_missing(record: dict, library: str, module: str) -> None:
    """A library that is not installed is listed with its reason, and an installed library has times."""
    reasons = [row["reason"] for row in record["missing"] if row["method"].startswith(library)]
    measured = [row for row in record["measurements"] if row["method"].startswith(library)]
    if importlib.util.find_spec(module) is None:
        assert reasons and all(f"No module named '{module}'" in reason for reason in reasons)
        assert not measured
    else:
        assert measured


@pytest.mark.sample(2)
def test_spmm(operated, tmp_path: Path) -> None:
    record = operated("op=spmm", "widths=[5,16]")
    assert set(record) >= {*RECORD, "git_commit", "finished"}
    measured = {(row["method"], row["case"]["width"]) for row in record["measurements"]}
    refused = {"csr"} if record["device"] == "cpu" else {"blocked"}
    kernels = {*choices("kernel")} - refused
    assert measured >= {(f"kernel={kernel}", width) for kernel in kernels for width in (5, 16)}
    assert {f"kernel={kernel}" for kernel in refused} <= {row["method"] for row in record["missing"]}
    assert measured >= {("torch CSR @", 5), ("torch.sparse.mm sum", 16)}
    assert all(row["details"]["error"] < 1e-5 for row in record["measurements"])
    ours = [row for row in record["measurements"] if row["kind"] == "ours"]
    assert all(min(row["ratio"] for row in ours if row["case"]["width"] == width) == 1 for width in (5, 16))
    check_missing(record, "PyG", "torch_geometric")
    check_missing(record, "DGL", "dgl")
    assert record["problem"]["nnz"] == record["problem"]["num_edges"] + record["problem"]["num_nodes"]
    table = (tmp_path / "out/table.md").read_text()
    assert all(row["method"] in table for row in [*record["measurements"], *record["missing"]])


def test_an_order_changes_the_graph_for_everyone_and_no_result(operated) -> None:
    arguments = ("op=spmm", "widths=[8]", "order=rcm", "kernels=[torch]", "peers=[torch]", "baseline='torch CSR @'")
    record = operated(*arguments)
    assert all(row["details"]["error"] < 1e-5 for row in record["measurements"])
    assert {row["baseline"] for row in record["measurements"]} == {"torch CSR @ (1 x 1), width=8"}


def test_epoch_on_one_process(operated) -> None:
    presets = "presets=[default,'default model.num_layers=2 reorder=degree']"
    record = operated("op=epoch", presets, "peers=[torch,dgl]", "baseline=default")
    ours = [row for row in record["measurements"] if row["kind"] == "ours"]
    assert [row["method"] for row in ours] == ["default", "default model.num_layers=2 reorder=degree"]
    assert all(row["details"]["kernel"] == row["details"]["settings"]["kernel"] for row in ours)
    for row in record["measurements"]:
        losses = row["values"]
        assert len(losses) == 4 and losses[-1] < losses[0] and row["details"]["last_loss"] == losses[-1]
        error = max(abs(a - b) for a, b in zip(losses, ours[0]["values"]))
        assert row["details"]["loss_error"] == pytest.approx(error)
        assert error < 1e-5  # float32: sums in another order
    assert sum(row["kind"] == "peer" for row in record["measurements"]) >= 5
    check_missing(record, "DGL", "dgl")


@pytest.mark.sample(6)
def test_epoch_of_a_gat(operated) -> None:
    record = operated("op=epoch", "gnn=gat", "hidden=64", "presets=[default]", "peers=[torch,pyg,dgl]")
    check_missing(record, "PyG", "torch_geometric")
    check_missing(record, "DGL", "dgl")
    assert record["measurements"][0]["method"] == "default"
    for row in record["measurements"]:
        assert row["details"]["loss_error"] < 1e-5 and row["values"][-1] < row["values"][0]


def test_epochs_that_find_links(operated) -> None:
    """Every method draws for itself: their losses are similar, not equal."""
    record = operated("op=epoch", "gnn=lightgcn", "presets=[default]", "peers=[torch,dgl]", "batch_size=9000")
    assert [row["method"] for row in record["measurements"]] == ["default", "torch CSR", "torch CSR + own backward"]
    for row in record["measurements"]:
        assert row["details"]["loss_error"] < 0.02 and row["values"][-1] < row["values"][0] < 0.7


def test_a_preset_that_does_not_fit_is_named(operated) -> None:
    record = operated("op=epoch", "presets=[default,'default scheme=1.5d scheme.replication=2']", "peers=[]")
    (missing,) = record["missing"]
    assert missing["method"].startswith("default scheme=1.5d") and missing["reason"].startswith("ConfigError: ")
    assert [row["method"] for row in record["measurements"]] == ["default"]


def test_collectives(operated) -> None:
    record = operated("op=collectives", "sizes_mb=[0.01,0.1]", size=2)
    assert record["world_size"] == 2 and record["problem"] is None
    assert {row["method"] for row in record["measurements"]} == KINDS
    for row in record["measurements"]:
        num_bytes = 4 * (int(row["case"]["size_mb"] * 2**18) // 2 * 2)
        assert row["details"]["gb_per_s"] == pytest.approx(num_bytes / row["median_ms"] / 1e6)


def test_reorder(operated) -> None:
    record = operated("op=reorder", "orders=[none,rcm,shuffle]", "widths=[8]", "kernels=[torch]")
    rows = {(row["method"], row["case"]["order"]): row for row in record["measurements"]}
    assert set(rows) == {(m, o) for m in ("kernel=torch", "torch CSR @") for o in ("none", "rcm", "shuffle")}
    assert rows["torch CSR @", "none"]["ratio"] == 1
    quality = {order: rows["kernel=torch", order]["details"] for order in ("none", "rcm", "shuffle")}
    assert quality["rcm"]["bandwidth"] < quality["shuffle"]["bandwidth"]
    assert 0 < quality["rcm"]["edge_cut"] < 1


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("op=spmm baseline=torch widths=[2] peers=[] kernels=[torch]", "baseline=torch is not among"),
        ("op=reorder baseline=rcm orders=[none]", "baseline=rcm is not among the orders: choose one of none"),
        ("op=spmm graph=rmat overrides=['dataset.num_nodes=50','dataset.num_edges=90']", "graph=rmat is directed"),
    ],
)
def test_mistakes_that_only_the_run_can_see(operated, overrides: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        operated(*overrides.split())


def test_parts_of_separate_processes(ranks) -> None:
    cfg = load_bench(
        *("op=epoch", "nproc=2", "presets=[default,full]", "alone=[full]", "peers=[pyg,dgl]", "separate=true"),
        "alone_threads=[1,2]",
    )
    parts = [(part.threads, part.presets, part.peers) for part in parts_alone(cfg)]
    assert parts == [(n, *part) for n in (1, 2) for part in ((["full"], []), ([], ["pyg"]), ([], ["dgl"]))]


def methods_alone(world: World, alone: str) -> list[str]:
    cfg = load_bench(*SHORT, "op=epoch", "nproc=2", "presets=[default,full]", "peers=[]", *([alone] if alone else []))
    (part,) = parts_alone(cfg)
    return [method.name for method in single_process(part, world).methods]


@pytest.mark.parametrize(
    ("alone", "methods"), [("", ["default", "full"]), ("alone=[full]", ["full"]), ("alone=[]", [])]
)
def test_which_presets_run_alone(ranks, alone: str, methods: list[str]) -> None:
    assert ranks(1)(methods_alone, alone) == [methods]


@pytest.mark.sample(6)
def test_sampling(operated) -> None:
    record = operated("op=sampling", "fanouts=[4,3]", "batch_size=50", "batches=2", "peers=[dgl]")
    check_missing(record, "DGL", "dgl")
    fused, separate, fast = record["measurements"][:3]
    assert [row["method"] for row in (fused, separate, fast)] == ["fused", "separate operators", "toBlockFast"]
    assert fused["values"] == separate["values"] == fast["values"]  # drawn edges: the same batches
    for row in (separate, fast):
        assert 0 < row["details"]["block_share"] < 1 and 0 < row["details"]["redundant_share"] < 1
    for row in record["measurements"]:
        rates = [edges / 2 / ms / 1e3 for edges, ms in zip(row["values"][1:], row["times_ms"], strict=True)]
        assert row["details"]["m_edges_per_s"] == pytest.approx(statistics.median(rates))
    assert record["problem"]["num_batches"] == -(-1223 // 50)


MINIBATCH = ("op=minibatch", "fanouts=[4,3]", "batch_size=50", "hidden=16")


@pytest.mark.sample(4)
@pytest.mark.parametrize("size", [1, 2])
def test_minibatch(operated, size: int) -> None:
    arguments = (*MINIBATCH, "batches=20", "peers=[dgl,pyg]")
    record = operated(*arguments, size=size)
    check_missing(record, "DGL", "dgl")
    ours = record["measurements"][0]
    assert ours["method"] == "ours" and ours["values"][-1] < ours["values"][0]
    assert sum(ours["details"]["steps_ms"][step] for step in ("sample", "forward", "backward")) > 0
    assert ours["details"]["parameter_bytes"] == 4 * (2 * 32 * 16 + 16 + 2 * 16 * 7 + 7)
    assert record["problem"]["num_batches"] == -(-1223 // (50 * size))
    cached = operated(*arguments, "overrides=['cache=exact','cache.horizon=2']", size=size, out="cached")[
        "measurements"
    ][0]
    assert cached["values"] == pytest.approx(ours["values"]) and cached["details"]["steps_ms"]["cache"] > 0


@pytest.mark.sample(2)
def test_presets_of_minibatch(operated) -> None:
    every = "default sampler.fanouts=[-1,-1]"
    cached = f"{every} cache=degree cache.megabytes=0.128 loader.num_workers=1"  # 1000 rows of 32 float32
    layers = "default model=gcn normalization=none self_loops=false sampler=layer sampler.sizes=[9,9]"
    record = operated(*MINIBATCH, "batches=4", "peers=[]", f"presets=[{every!r},{cached!r},{layers!r}]")
    plain, other, drawn = (row["details"] for row in record["measurements"])
    assert [row["method"] for row in record["measurements"]] == [every, cached, layers]
    count = len(plain["losses"])
    assert count == 16 and other["losses"][:count] == plain["losses"]  # the same batches, to the bit
    assert plain["counts"]["hits"] == 0 < other["counts"]["hits"]
    assert plain["counts"]["fetched_bytes"] == plain["counts"]["input_rows"] * 32 * 4
    first, last = plain["layers"]
    assert last["targets"] == 50 and first["targets"] == last["sources"] and first["edges"] > last["edges"] > 50
    assert drawn["parameter_bytes"] == 4 * (32 * 16 + 16 + 16 * 7 + 7) and drawn["operations"]["count"] > 10
    assert 50 <= drawn["layers"][1]["sources"] < 90 and "steps_ms" in drawn  # about 9 nodes besides the targets


@pytest.mark.sample(4)
def test_the_rank_that_draws_most_is_described(ranks, operated) -> None:
    """Parts of two ranks draw differently; the record has the counts of the busier one, which rank 0 need not be."""
    arguments = ["op=minibatch", "graph=rmat", "fanouts=[3,2]", "batch_size=60", "batches=2", "hidden=4", "peers=[]"]
    arguments += ["overrides=['dataset.num_nodes=300','dataset.num_edges=900']"]
    arguments += ["presets=['default','default loader.split=pagraph']"]
    edges = [row["details"]["counts"]["sampled_edges"] for row in operated(*arguments, size=2)["measurements"]]
    drawn = ranks(2)(edges_of_parts, *arguments)
    assert len({*drawn}) == 2 and edges[1] == max(drawn)


def edges_of_parts(world: World, *arguments: str) -> float:
    """The median of what this rank draws in a batch, counted by its loader, over the same rounds."""
    cfg = load_bench(*SHORT, *arguments, f"nproc={world.size}")
    graph = load_graph(cfg)
    job = Ours(cfg, world, graph, "default loader.split=pagraph")
    for _ in range(4):
        job.step(cfg.batches)
    return job._median("counts")["sampled_edges"]


def test_a_directed_graph_without_peers(operated) -> None:
    directed = ["graph=rmat", "overrides=['dataset.num_nodes=300','dataset.num_edges=2000']"]
    arguments = ["op=minibatch", "fanouts=[2]", "batch_size=50", "batches=1", *directed]
    assert operated(*arguments, "peers=[]")["problem"]["num_edges"] <= 2000
    with pytest.raises(UnsupportedError, match="graph=rmat is directed or weighted, and the peers do not agree"):
        load_graph(load_bench(*SHORT, *arguments, "peers=[dgl]"))
