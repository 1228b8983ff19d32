"""A run that loads its node order and A @ H0 from disk equals the run that computed them."""

import logging
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from scipy.sparse import csr_array

from fullgnn.config import Config
from fullgnn.distributed import World, from_rank0
from fullgnn.engine import fit, set_up
from fullgnn.engine.step_runner import StepRunner
from fullgnn.errors import ConfigError
from fullgnn.graph import Graph
from fullgnn.graph.node_data import normalize_rows
from fullgnn.prepare.source import Preparation
from fullgnn.prepare.statistics import kept_statistics
from fullgnn.schemes.inputs import PropagatedInput
from fullgnn.storage.cache import Cache
from fullgnn.telemetry.meter import Meter
from tests.cases import config, dense_graph, layout_overrides


@dataclass(frozen=True)
class Outcome:
    """The results of one run on one rank."""

    losses: list[float]
    product: np.ndarray
    set_up_columns: int  # columns multiplied before the first epoch
    order_time_s: float
    used: tuple[str, str]
    lines: list[str]
    num_stored: int  # slices that this rank has written


def run(world: World, cfg: Config, graph: Graph) -> Outcome:
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    package = logging.getLogger("fullgnn")
    package.addHandler(handler)
    package.setLevel(logging.INFO)
    try:
        meter = Meter(world.device)
        with mock.patch.object(Cache, "store", autospec=True, side_effect=Cache.store) as store:
            job = set_up(cfg, world, meter, graph if world.rank == 0 else None)
        columns = meter.take().counts.get("spmm_columns", 0)
        features = job.graph.features
        product = features.products[1] if isinstance(features, PropagatedInput) else features
        used = job.facts.methods
        return Outcome(
            [epoch.loss for epoch in fit(StepRunner(job)).epochs],
            product.detach().cpu().numpy().copy(),
            columns,
            used.partition_time_s + used.reorder_time_s,
            (used.partition, used.reorder),
            lines,
            sum(kind == "aggregation" for _, kind, *_ in (call.args for call in store.call_args_list)),
        )
    finally:
        package.removeHandler(handler)


def case(folder: Path | str, replication: int = 1, *overrides: str) -> Config:
    return config(
        "partition=metis", "reorder=metis", "train.epochs=3", "model.hidden_channels=4", "model.input_dropout=0",
        "reorder.cluster_size=5", "runtime.dtype=float64", f"runtime.cache_dir={folder}",
        *layout_overrides(replication), *overrides,
    )  # fmt: skip


def files(folder: Path) -> tuple[int, int]:
    """The numbers of cached node orders and of cached slices of A @ H0."""
    assert not list(folder.rglob("*.tmp")) and not list(folder.glob("prepared/.*"))
    return len(list(folder.glob("order/*.npz"))), len(list(folder.glob("aggregation/*.npz")))


GRAPH = dense_graph("symmetric").graph()
NUM_FEATURES = GRAPH.num_features


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("world_size", "replication", "overrides", "num_slices"),
    [
        (1, 1, [], 1),
        (3, 1, [], 3),
        (4, 2, [], 4),
        (4, 2, ["scheme.split_rows=false"], 2),  # replicas with the same rows store one slice
        (4, 1, ["runtime.dtype=float32", "normalization=row"], 4),
    ],
)
def test_the_second_run_loads_and_is_the_first_to_the_bit(
    ranks, tmp_path: Path, world_size: int, replication: int, overrides: list[str], num_slices: int
) -> None:
    pool = ranks(world_size)
    plain = pool(run, case("null", replication, *overrides), GRAPH)
    assert plain[0].set_up_columns == NUM_FEATURES and not list(tmp_path.iterdir())
    first = pool(run, case(tmp_path, replication, *overrides), GRAPH)
    assert files(tmp_path) == (1, num_slices) and sum(rank.num_stored for rank in first) == num_slices
    times = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.npz")}
    second = pool(run, case(tmp_path, replication, *overrides), GRAPH)
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.npz")} == times
    for without, stored, loaded in zip(plain, first, second):
        assert without.losses == stored.losses == loaded.losses
        assert without.product.tobytes() == stored.product.tobytes() == loaded.product.tobytes()
        assert (stored.set_up_columns, loaded.set_up_columns) == (NUM_FEATURES, 0)
        assert stored.order_time_s > loaded.order_time_s == 0
        assert stored.used == loaded.used == ("metis", "metis")
        assert all("edge to themselves" in line for line in [*without.lines, *stored.lines])  # the remark on the graph
    assert [sum(what in line for line in second[0].lines) for what in ("prepared graph", "A @ H0")] == [1, 1]


@pytest.mark.sample(2)
@pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-9])])
@pytest.mark.parametrize("split_rows", [True, False])
def test_if_one_rank_lacks_its_file_all_multiply(
    ranks, tmp_path: Path, harm: Callable[[Path], object], split_rows: bool
) -> None:
    cfg = case(tmp_path, 2, f"scheme.split_rows={split_rows}")
    first = ranks(4)(run, cfg, GRAPH)
    count = files(tmp_path)
    harmed = sorted((tmp_path / "aggregation").iterdir())[-1]
    before = harmed.read_bytes()
    harm(harmed)
    second = ranks(4)(run, cfg, GRAPH)
    assert [rank.losses for rank in second] == [rank.losses for rank in first]
    assert [rank.set_up_columns for rank in second] == [NUM_FEATURES] * 4
    warned = [line for rank in second for line in rank.lines if "cannot be read" in line]
    assert len(warned) == (0 if harm is Path.unlink else 1 if split_rows else 2)
    assert sum(rank.num_stored for rank in second) == 1  # the files of the other ranks are valid
    assert files(tmp_path) == count and len(harmed.read_bytes()) == len(before)
    assert [rank.set_up_columns for rank in ranks(4)(run, cfg, GRAPH)] == [0] * 4


def test_a_damaged_order_is_made_again(ranks, tmp_path: Path) -> None:
    (first,) = ranks(1)(run, case(tmp_path), GRAPH)
    (file,) = (tmp_path / "order").iterdir()
    file.write_bytes(b"")
    shutil.rmtree(tmp_path / "prepared")
    (second,) = ranks(1)(run, case(tmp_path), GRAPH)
    assert second.order_time_s > 0 and second.set_up_columns == 0 and second.losses == first.losses
    assert len([line for line in second.lines if str(file) in line]) == 1


def _without_names(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {}


def _longer(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([array, array]) if array.ndim else array for name, array in arrays.items()}


def _as_text(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: array.astype("U") for name, array in arrays.items()}


@pytest.mark.parametrize("harm", [_without_names, _longer, _as_text])
def test_whole_files_of_other_arrays_are_not_used(ranks, tmp_path: Path, harm: Callable) -> None:
    """Their checksums are right, so only a look at the arrays shows that they are of another graph."""
    cfg = case(tmp_path, 1)
    first = ranks(2)(run, cfg, GRAPH)
    (prepared,) = (tmp_path / "prepared").iterdir()
    before = vars(kept_statistics(prepared, True).structure)
    cache, harmed = Cache(str(tmp_path)), sorted(tmp_path.glob("*/*.npz"))
    assert {file.parent.name for file in harmed} == {"order", "aggregation", "statistics"}
    for file in harmed:
        cache.store(file.parent.name, file.stem, harm(cache.load(file.parent.name, file.stem, dict)))
    assert all(
        np.array_equal(array, before[name]) for name, array in vars(kept_statistics(prepared, True).structure).items()
    )
    shutil.rmtree(prepared)
    second = ranks(2)(run, cfg, GRAPH)
    assert [rank.losses for rank in second] == [rank.losses for rank in first]
    assert [rank.set_up_columns for rank in second] == [NUM_FEATURES] * 2
    warned = [line for rank in second for line in rank.lines if "cannot be read" in line]
    assert len(warned) == 3 and all(line.endswith("it is not used") for line in warned)  # the order, and two slices


def changed(**fields: np.ndarray) -> Graph:
    return replace(GRAPH, **fields)


def one_edge_less() -> Graph:
    adj = dense_graph("symmetric").adj.copy()
    row, column = np.argwhere(np.triu(adj, 1))[0]
    adj[row, column] = adj[column, row] = 0
    adj = csr_array(adj)
    return changed(indptr=adj.indptr, indices=adj.indices)


POSITIVE = changed(features=np.abs(GRAPH.features))
OTHER_FEATURE = GRAPH.features.copy()
OTHER_FEATURE[17, 3] = np.nextafter(OTHER_FEATURE[17, 3], np.inf)
OTHER_MASK = GRAPH.train_mask.copy()
OTHER_MASK[27] = True

NOTHING, PRODUCT, BOTH = (0, 0), (0, 1), (1, 1)
ORDER = (1, None)  # the product is also missed, unless METIS finds the same order again
CHANGES = {  # overrides, graph, and which are not found in the cache: (order, product)
    "nothing": ([], GRAPH, NOTHING),
    "a feature": ([], changed(features=OTHER_FEATURE), PRODUCT),
    "width of the features": ([], changed(features=GRAPH.features[:, :4]), PRODUCT),
    "labels": ([], changed(labels=(GRAPH.labels + 1) % 3), PRODUCT),  # they are in the prepared graph
    "an edge": ([], one_edge_less(), BOTH),
    "weights": ([], changed(weight=np.full(GRAPH.num_edges, 0.5)), BOTH),
    "normalization": (["normalization=row"], GRAPH, PRODUCT),
    "self_loops": (["self_loops=false"], GRAPH, PRODUCT),
    "dtype": (["runtime.dtype=float32"], GRAPH, PRODUCT),
    "folded or not": (["optimizations.fold_normalization=false"], GRAPH, PRODUCT),
    "what travels": (["scheme.wire_dtype=bfloat16"], GRAPH, PRODUCT),
    "kernel": (["kernel=torch"], GRAPH, PRODUCT),
    "seed": (["seed=1"], GRAPH, ORDER),
    "partition": (["partition=random"], GRAPH, BOTH),
    "tolerance": (["partition.tolerance=0.3"], GRAPH, ORDER),
    "reorder": (["reorder=shuffle"], GRAPH, BOTH),
    "cluster_size": (["reorder.cluster_size=3"], GRAPH, ORDER),
    "model and training": (["model.hidden_channels=8", "optimizer.lr=0.1", "model.num_layers=3"], GRAPH, NOTHING),
    "training nodes of metis": ([], changed(train_mask=OTHER_MASK), ORDER),
}


@pytest.fixture(scope="module")
def kept(ranks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache folder of one run. Tests copy its files and write nothing to it."""
    folder = tmp_path_factory.mktemp("kept")
    ranks(2)(run, case(folder), GRAPH)
    assert files(folder) == (1, 2)
    return folder


@pytest.mark.sample(6)
@pytest.mark.parametrize("change", CHANGES)
def test_each_part_of_a_key_alone(ranks, kept: Path, tmp_path: Path, change: str) -> None:
    overrides, graph, missed = CHANGES[change]
    for file in kept.rglob("*.npz"):
        copy = tmp_path / file.relative_to(kept)
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(file.read_bytes())
    outcome = ranks(2)(run, case(tmp_path, 1, *overrides), graph)[0]
    orders, products = files(tmp_path)
    assert orders - 1 == missed[0] == (outcome.order_time_s > 0)
    if missed[1] is not None:
        assert (products - 2) // 2 == missed[1] == (outcome.set_up_columns > 0)
    reference = ranks(2)(run, case("null", 1, *overrides), graph)[0]
    assert outcome.losses == reference.losses  # whichever files were loaded


def test_the_product_knows_the_whole_order_and_every_bound(tmp_path: Path) -> None:
    """The key covers more than a rank's own rows, because sums are in the order of all columns."""
    contiguous, others = ["partition=contiguous", "reorder=none"], (["reorder=shuffle"], ["partition=nnz"])
    first, *changed_keys = [
        Preparation(case(tmp_path, 1, *contiguous, *change), 3, GRAPH).here().key for change in ([], *others)
    ]
    assert first and first not in changed_keys


def test_row_normalised_features_are_others(ranks, tmp_path: Path) -> None:
    for count, features in enumerate((POSITIVE.features, normalize_rows(POSITIVE.features)), start=1):
        ranks(1)(run, case(tmp_path), changed(features=features))
        assert files(tmp_path) == (1, count)


def test_layouts_keep_their_own_slices(ranks, tmp_path: Path) -> None:
    expected_orders, expected_slices = 0, 0
    for world_size, replication, split_rows, new_order, new_slices in (
        (4, 1, True, 1, 4),
        (4, 2, True, 1, 4),
        (2, 1, True, 0, 2),  # two parts again, but a slice is a whole block row
        (4, 2, False, 0, 2),
        (1, 1, True, 1, 1),
    ):
        cfg = case(tmp_path, replication, f"scheme.split_rows={split_rows}")
        ranks(world_size)(run, cfg, GRAPH)
        expected_orders, expected_slices = expected_orders + new_order, expected_slices + new_slices
        assert files(tmp_path) == (expected_orders, expected_slices)


def test_only_a_partitioner_that_looks_at_training_nodes_asks_for_them(tmp_path: Path) -> None:
    other = changed(train_mask=OTHER_MASK)
    for count, partition in enumerate(("contiguous", "nnz", "random"), start=1):
        for graph in (GRAPH, other):
            Preparation(case(tmp_path, 1, f"partition={partition}", "reorder=rcm"), 3, graph).here()
            assert files(tmp_path) == (count, 0)


def test_the_order_is_that_of_two_level(tmp_path: Path) -> None:
    for scope, partition in (("block", "metis"), ("block", "random"), ("whole", "nnz")):
        cfg = case(tmp_path, 1, f"partition={partition}", "reorder=rcm", f"reorder.scope={scope}")
        plain = Preparation(replace(cfg, runtime=replace(cfg.runtime, cache_dir=None)), 3, GRAPH).in_memory()
        computed, loaded, only_order = (
            Preparation(cfg, 3, GRAPH).here(),
            Preparation(cfg, 3, GRAPH).here(),
            Preparation(cfg, 3, GRAPH).in_memory(),
        )
        for prepared in (computed, loaded, only_order):
            ids = [np.concatenate([part.node_id for part in graph.parts()]) for graph in (prepared, plain)]
            assert np.array_equal(*ids) and ids[0].dtype == ids[1].dtype == np.int64
            assert np.array_equal(prepared.facts.partition.bounds, plain.facts.partition.bounds)
            used, num_blocks = prepared.facts.methods, plain.facts.methods.reorder_num_blocks
            assert (used.partition, used.reorder, used.reorder_num_blocks) == (partition, "rcm", num_blocks)
        for prepared in (loaded, only_order):
            assert prepared.facts.methods.partition_time_s == prepared.facts.methods.reorder_time_s == 0


def test_a_fallback_is_not_kept(tmp_path: Path, monkeypatch) -> None:
    cfg = case(tmp_path)
    with monkeypatch.context() as broken:
        broken.setitem(sys.modules, "pymetis", None)
        for _ in range(2):
            prepared = Preparation(cfg, 3, GRAPH).here()
            used = prepared.facts.methods
            assert (used.partition, used.reorder) == ("nnz", "rcm") and files(tmp_path) == (0, 0)
            assert prepared.key == "" and not list(tmp_path.glob("prepared/*"))
    used = Preparation(cfg, 3, GRAPH).here().facts.methods
    assert (used.partition, used.reorder) == ("metis", "metis") and files(tmp_path) == (1, 0)


@pytest.mark.parametrize("switch", ["optimizations.cache_aggregation=false", "model.input_dropout=0.5"])
def test_without_a_product_nothing_of_it_is_read_or_stored(ranks, tmp_path: Path, switch: str) -> None:
    for _ in range(2):
        (outcome,) = ranks(1)(run, case(tmp_path, 1, switch), GRAPH)
        assert outcome.set_up_columns == 0 and files(tmp_path) == (1, 0)
        assert not any("A @ H0" in line for line in outcome.lines)


def test_a_folder_that_cannot_be_written_is_one_error_on_every_rank(ranks, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    messages = ranks(3)(refusal, case(tmp_path / "file"))
    assert len(set(messages)) == 1
    assert messages[0].startswith(f"runtime.cache_dir={tmp_path}/file cannot be written")


def refusal(world: World, cfg: Config) -> str:
    """The error of a run. The graph is invalid, but the cache folder is checked before the graph is read."""
    with pytest.raises(ConfigError) as caught:
        set_up(cfg, world, Meter(world.device), "never looked at")  # type: ignore[arg-type]
    from_rank0(lambda: None)  # the ranks still agree on the next collective
    return str(caught.value)
