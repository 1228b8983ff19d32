"""Splits that are drawn: their sizes against plain counts and scikit-learn, and what is refused."""

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import StratifiedKFold

from fullgnn.config.compose import compose, load_config
from fullgnn.errors import ConfigError, DataError, FullGNNError
from fullgnn.graph import Graph, check_dataset, dataset_identity, dataset_lacks, load_dataset
from fullgnn.graph.datasets import karate
from fullgnn.graph.remarks import say, sentences
from fullgnn.graph.splits import METHODS, few_label_split, random_split

NODES = 1003


def graph(**changes: Any) -> Graph:
    """A ring; some nodes have no label, and classes are of very different sizes."""
    rng = np.random.default_rng(0)
    labels = rng.choice(5, NODES, p=[0.4, 0.3, 0.2, 0.08, 0.02])
    labels[rng.random(NODES) < 0.1] = -1
    node = np.arange(NODES)
    ring = np.stack([node, (node + 1) % NODES])
    return Graph.from_edge_index(ring, **{"num_nodes": NODES, "labels": labels, "name": "ring", **changes})


GROUPS = np.random.default_rng(1).integers(0, 40, NODES)


def keys(method: str) -> dict[str, Any]:
    return {"per_class": {"train_per_class": 5, "num_val": 100}, "group": {"groups": GROUPS}}.get(method, {})


def masks_of(split: Graph) -> np.ndarray:
    return np.stack([split.train_mask, split.val_mask, split.test_mask])


@pytest.mark.parametrize("method", METHODS)
def test_a_split_has_every_labelled_node_once_and_depends_on_nothing_but_labels_and_seed(method: str) -> None:
    whole = graph()
    split = whole.split(method, seed=3, **keys(method))
    assert np.array_equal(masks_of(split).sum(axis=0), whole.labels >= 0)
    again = replace(whole, indptr=np.zeros(NODES + 1, int), indices=[])  # without edges
    assert np.array_equal(masks_of(again.split(method, seed=3, **keys(method))), masks_of(split))
    assert not np.array_equal(masks_of(whole.split(method, seed=4, **keys(method))), masks_of(split))
    assert not whole.train_mask.any()


def test_random_is_the_split_of_a_file_without_masks() -> None:
    whole = graph()
    expected = random_split(whole.labels, 0.5, 0.1, 7)
    split = whole.split(train_fraction=0.5, val_fraction=0.1, seed=7)
    assert np.array_equal(masks_of(split), [*expected.values()])


@pytest.mark.parametrize(("train", "val"), [(0.6, 0.2), (0.05, 0.1), (1 / 3, 1 / 3), (0.7, 0.0), (0.8, 0.2)])
def test_stratified_parts_have_the_shares_of_every_class(train: float, val: float) -> None:
    whole = graph()
    split = whole.split("stratified", train_fraction=train, val_fraction=val)
    labelled = whole.labels[whole.labels >= 0]
    sizes = np.bincount(labelled)
    for mask, share in zip(masks_of(split), (train, val, 1 - train - val)):
        counts = np.bincount(whole.labels[mask], minlength=5)
        assert (np.abs(counts - share * sizes) < 1.5).all()
    assert split.train_mask.sum() == round(train * len(labelled))
    assert split.train_mask.sum() + split.val_mask.sum() == round((train + val) * len(labelled))


def test_per_class_takes_as_many_of_each_class() -> None:
    split = graph().split("per_class", train_per_class=7, num_val=50)
    assert np.bincount(split.labels[split.train_mask]).tolist() == [7] * 5 and split.val_mask.sum() == 50
    gap = np.where(graph().labels == 3, -1, graph().labels)  # a class that no node has
    split = graph(labels=gap).split("per_class", train_per_class=7, num_val=50)
    assert np.bincount(split.labels[split.train_mask]).tolist() == [7, 7, 7, 0, 7]


@pytest.mark.parametrize("of", ["integers", "texts", "a column"])
def test_no_group_is_in_two_parts(of: str) -> None:
    groups = {"integers": GROUPS, "texts": GROUPS.astype(str), "a column": GROUPS[:, None]}[of]
    split = graph().split("group", groups=groups, train_fraction=0.5, val_fraction=0.25)
    parts = [set(GROUPS[mask]) for mask in masks_of(split)]
    assert not (parts[0] & parts[1] or parts[0] & parts[2] or parts[1] & parts[2])
    shares = masks_of(split).sum(axis=1) / (split.labels >= 0).sum()
    assert np.abs(shares - [0.5, 0.25, 0.25]).max() < 0.03


def test_one_large_group_leaves_a_group_for_each_part() -> None:
    groups = np.zeros(NODES, int)
    groups[:20], groups[20:30] = 1, 2
    labels = np.zeros(NODES, int)
    for seed in range(6):
        split = graph(labels=labels).split("group", groups=groups, seed=seed)
        assert sorted(masks_of(split).sum(axis=1)) == [10, 20, NODES - 30]


@pytest.mark.parametrize("num_folds", [2, 5, 10])
def test_folds_are_disjoint_stratified_and_together_all_labelled_nodes(num_folds: int) -> None:
    whole = graph()
    val = 0.2 if num_folds > 2 else 0.1
    folds = [whole.split("kfold", num_folds=num_folds, fold=k, val_fraction=val, seed=1) for k in range(num_folds)]
    tests = np.stack([fold.test_mask for fold in folds])
    assert np.array_equal(tests.sum(axis=0), whole.labels >= 0)
    counts = np.stack([np.bincount(whole.labels[mask], minlength=5) for mask in tests])
    assert (counts.max(axis=0) - counts.min(axis=0) <= 1).all() and np.ptp(tests.sum(axis=1)) <= 1
    labelled = np.flatnonzero(whole.labels >= 0)
    theirs = StratifiedKFold(num_folds).split(labelled, whole.labels[labelled])
    expected = [np.bincount(whole.labels[labelled[test]], minlength=5) for _, test in theirs]
    assert sorted(counts[:, 0]) == sorted(sizes[0] for sizes in expected)
    for fold in folds:
        assert fold.val_mask.sum() == round(val * len(labelled))
        shares = np.bincount(whole.labels[fold.val_mask], minlength=5) / np.bincount(whole.labels[labelled])
        assert np.abs(shares[:3] - val).max() < 0.02
    assert not np.array_equal(folds[0].val_mask, folds[1].val_mask)


@pytest.mark.parametrize("kind", ["several labels", "numbers"])
def test_labels_that_are_no_classes(kind: str) -> None:
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 2, (NODES, 3)) if kind == "several labels" else rng.random(NODES)
    whole = graph(labels=labels)
    tests = np.stack([whole.split("kfold", fold=fold).test_mask for fold in range(5)])
    assert (tests.sum(axis=0) == 1).all() and np.ptp(tests.sum(axis=1)) <= 1
    for method in ("stratified", "per_class"):
        with pytest.raises(ConfigError, match=f"split={method} takes one class a node, .*take split=random"):
            whole.split(method)
    assert whole.split("group", groups=GROUPS).train_mask.any() and whole.split().train_mask.any()


def test_whole_floats_are_classes() -> None:
    labels = np.where(graph().labels < 0, np.nan, graph().labels)
    for method in ("stratified", "kfold", "per_class"):
        drawn = graph(labels=labels.astype(np.float32)).split(method, **keys(method))
        assert np.array_equal(masks_of(drawn), masks_of(graph().split(method, **keys(method))))


SAYS = {
    "random": "903 labelled nodes were split at random: 0.6 of them for training and 0.2 for validation, .* seed 3",
    "stratified": "903 labelled nodes were split at random within their classes .*: 0.6 of .* 0.2 .* seed 3",
    "per_class": "903 labelled nodes .*: 5 of every class for training and 100 others for validation, with the seed 3",
    "group": "903 labelled nodes .* whole groups .*: 0.6 .* and 0.2 for validation, with the seed 3",
    "kfold": "903 labelled nodes were split into 5 folds, of which fold 0 .* 0.2 of all are for validation, .* seed 3",
}


@pytest.mark.parametrize("method", METHODS)
def test_the_remark_names_method_keys_and_seed(method: str, caplog: pytest.LogCaptureFixture) -> None:
    count = int((graph().labels >= 0).sum())
    caplog.set_level(logging.INFO)
    split = graph().split(method, seed=3, **keys(method))
    say(split.name, split.remarks)
    assert len(caplog.messages) == 1
    assert re.search(SAYS[method].replace("903", str(count)), caplog.messages[0])
    caplog.clear()
    another = split.split("random")
    say(another.name, another.remarks)  # what was drawn before is not told again
    assert len(caplog.messages) == 1 and another.remarks["random_split_nodes"] == count


def test_a_count_that_a_damaged_record_lacks_is_written_as_none() -> None:
    (told,) = sentences({"random_split_nodes": 12_345, "split_train_fraction": 250_000, "split_seed": 7})
    assert "12345 labelled nodes" in told and "0.25 of them for training and 0 for" in told and "seed 7" in told
    assert sentences({"random_split_nodes": None, "split_train_fraction": None})[0].startswith("None labelled")


def test_the_remark_of_an_earlier_version_names_no_shares() -> None:
    assert sentences({"random_split_nodes": 34}) == ["34 labelled nodes were split at random"]


def test_the_split_of_the_data_is_replaced_with_a_remark() -> None:
    club = karate.load(train_per_class=4, num_val=8, seed=0)
    assert club.split("stratified").remarks["replaced_split_nodes"] == 34
    assert "replaced_split_nodes" not in replace(club, train_mask=None, val_mask=None, test_mask=None).split().remarks


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "unknown": (
        lambda: graph().split("public"),
        "split=public is not known: choose one of random, stratified, per_class",
    ),
    "unused": (
        lambda: graph().split("kfold", train_fraction=0.5),
        "train_fraction=0.5 would do nothing, since split=kf",
    ),
    "unused fold": (lambda: graph().split("random", fold=1), "fold=1 would do nothing"),
    "unused groups": (lambda: graph().split("random", groups=GROUPS), "groups=... would do nothing"),
    "shares": (lambda: graph().split(train_fraction=0.7, val_fraction=0.4), "0.7 and val_fraction=0.4 are no split"),
    "stratified shares": (
        lambda: graph().split("stratified", train_fraction=0.7, val_fraction=0.4),
        "0.7 and val_fraction=0.4 are no split",
    ),
    "no training": (lambda: graph().split(train_fraction=0), "train_fraction=0 is no share"),
    "NaN": (lambda: graph().split("kfold", val_fraction=float("nan")), "val_fraction=nan is no share"),
    "fold": (lambda: graph().split("kfold", fold=5), "fold=5 and num_folds=5 name no fold"),
    "one fold": (lambda: graph().split("kfold", num_folds=1), "name no fold: choose at least 2"),
    "many folds": (lambda: graph().split("kfold", num_folds=5000), "num_folds=5000 is more than the"),
    "no rest": (lambda: graph().split("kfold", num_folds=2, val_fraction=0.6), "leaves no node for training"),
    "no groups": (lambda: graph().split("group"), "needs the group of each node: give groups="),
    "groups short": (lambda: graph().split("group", groups=GROUPS[1:]), r"shape \(1002,\) .*: give 1003 integers"),
    "groups float": (lambda: graph().split("group", groups=GROUPS / 2), "dtype float64"),
    "one group": (lambda: graph().split("group", groups=GROUPS * 0), "1 groups of labelled nodes, and the split 3"),
    "small class": (lambda: graph().split("per_class", train_per_class=500), "the smallest class"),
    "negative seed": (lambda: graph().split(seed=-1), "seed=-1 is negative"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_one_line(case: str) -> None:
    call, message = REFUSED[case]
    with pytest.raises(ConfigError, match=message) as refused:
        call()
    assert "\n" not in str(refused.value)


def test_a_graph_without_labels_has_nothing_to_split() -> None:
    with pytest.raises(DataError, match="no labels, whose nodes could be split"):
        graph(labels=None).split()


# From the command line.


@pytest.fixture
def file(tmp_path: Path) -> Path:
    graph().save(tmp_path / "ring.npz")
    np.save(tmp_path / "groups.npy", GROUPS)
    return tmp_path / "ring.npz"


@pytest.mark.parametrize("method", METHODS)
def test_the_keys_of_a_dataset_draw_the_split_of_python(method: str, file: Path, compose_dataset: Any) -> None:
    given = keys(method) | ({"groups": str(file.with_name("groups.npy"))} if method == "group" else {})
    node = compose_dataset("npz", path=str(file), split=method, split_seed=3, **given)
    assert dataset_lacks(node) == [] and dataset_lacks(node | {"split": None}) in (["train_mask"], [])
    check_dataset(node)
    loaded = load_dataset(node)
    assert np.array_equal(masks_of(loaded), masks_of(graph().split(method, seed=3, **keys(method))))
    assert dict(loaded.remarks) == dict(graph().split(method, seed=3, **keys(method)).remarks)


def test_the_seed_of_the_dataset_is_that_of_the_split_unless_there_is_one(file: Path, compose_dataset: Any) -> None:
    node = compose_dataset("npz", path=str(file), split="random", seed=3)
    assert np.array_equal(masks_of(load_dataset(node)), masks_of(graph().split(seed=3)))
    assert np.array_equal(masks_of(load_dataset(node | {"split_seed": 4})), masks_of(graph().split(seed=4)))


@pytest.mark.parametrize("choice", ["karate", "digits", "synthetic"])
def test_every_dataset_can_be_split_anew(choice: str, compose_dataset: Any) -> None:
    given = {"num_nodes": 300, "num_edges": 3000} if choice == "synthetic" else {}
    node = compose_dataset(choice, split="kfold", fold=2, **given)
    folds = [load_dataset(node | {"fold": fold}) for fold in range(5)]
    assert (np.stack([fold.test_mask for fold in folds]).sum(axis=0) == 1).all()
    assert folds[0].remarks["replaced_split_nodes"] == folds[0].num_nodes
    own = load_dataset(compose_dataset(choice, **given))
    assert np.array_equal(own.indices, folds[0].indices) and np.array_equal(own.labels, folds[0].labels)


def test_the_yaml_of_a_user_need_not_have_the_keys(tmp_path: Path) -> None:
    (tmp_path / "dataset").mkdir()
    yaml = "_target_: fullgnn.graph.datasets.karate.load\nname: club\nsymmetrize: false\n"
    (tmp_path / "dataset" / "club.yaml").write_text(f"{yaml}train_per_class: 4\nnum_val: 8\nseed: 0\n")
    own = load_dataset(load_config(compose("dataset=club", folders=[str(tmp_path)])).dataset)
    assert masks_of(own).sum(axis=1).tolist() == [8, 8, 18]
    cfg = load_config(compose("dataset=club", "+dataset.split=kfold", "+dataset.fold=1", folders=[str(tmp_path)]))
    assert load_dataset(cfg.dataset).remarks["kfold_split_nodes"] == 34
    with pytest.raises(ConfigError, match=r"has no dataset.split: write \+dataset.split=..., or add the default base"):
        compose("dataset=club", "dataset.split=kfold", folders=[str(tmp_path)])


REFUSED_KEYS = {
    "nothing reads it": ({"num_folds": 4}, "dataset.num_folds=4 would do nothing, since .*: add dataset.split=kfold"),
    "a seed alone": ({"split_seed": 4}, "dataset.split_seed=4 would do nothing"),
    "another method": ({"split": "random", "fold": 1}, "dataset.fold=1 would do nothing, since dataset.split=random"),
    "unknown": ({"split": "public"}, "dataset.split=public is not known"),
    "one split": ({"split": 2}, "dataset.split=2 chooses one of several splits, and this dataset has one"),
    "no file": ({"split": "group", "groups": "none.npy"}, "no file .*none.npy: set dataset.groups"),
    "no column": ({"split": "group", "groups": "year"}, "dataset.groups=year is no .npy file, and the nodes of karate"),
    "negative": ({"split": "random", "split_seed": -1}, "dataset.split_seed=-1 is no seed"),
    "a fold": ({"split": "kfold", "fold": 9}, "dataset.fold=9 and dataset.num_folds=5 name no fold"),
}


@pytest.mark.parametrize("case", REFUSED_KEYS)
def test_keys_that_do_not_fit_are_refused_before_anything_is_loaded(case: str, compose_dataset: Any) -> None:
    given, message = REFUSED_KEYS[case]
    node = compose_dataset("karate", **given)
    for function in (load_dataset, *([] if case == "no column" else [check_dataset])):
        with pytest.raises(FullGNNError, match=message) as refused:
            function(node)
        assert "\n" not in str(refused.value)


def test_a_damaged_file_of_groups_is_one_line(file: Path, compose_dataset: Any) -> None:
    groups = file.with_name("groups.npy")
    node = compose_dataset("npz", path=str(file), split="group", groups=str(groups))
    whole = groups.read_bytes()
    before = dataset_identity(node)
    np.save(groups, np.array([{"a": 1}] * NODES, object), allow_pickle=True)
    assert dataset_identity(node) != before
    for content in (whole[:50], b"", whole[:-8], groups.read_bytes(), b"\x93NUMPY\x01\x00"):
        groups.write_bytes(content)
        with pytest.raises(FullGNNError, match="groups.npy cannot be read") as refused:
            load_dataset(node)
        assert "\n" not in str(refused.value)


def several(file: Path, **arrays: Any) -> Path:
    with np.load(file) as read:
        np.savez(file, **{**read, **arrays})
    return file


def test_a_number_chooses_a_column_of_masks(file: Path, compose_dataset: Any) -> None:
    splits = [graph().split(seed=seed) for seed in range(3)]
    columns = {
        f"{name}_mask": np.stack([getattr(split, f"{name}_mask") for split in splits], axis=1)
        for name in ("train", "val", "test")
    }
    several(file, **columns)
    for number in range(3):
        loaded = load_dataset(node := compose_dataset("npz", path=str(file), split=number))
        assert np.array_equal(masks_of(loaded), masks_of(splits[number])) and dataset_lacks(node) == []
    for number, message in (
        (None, "has 3 columns, a split each: choose one of them, as in dataset.split=0"),
        (3, "split=3 is out of range: train_mask has the splits 0 to 2"),
        (-1, "split=-1 is out of"),
    ):
        with pytest.raises(DataError, match=f"ring.npz: .*{message}"):
            load_dataset(compose_dataset("npz", path=str(file), split=number))
    drawn = load_dataset(compose_dataset("npz", path=str(file), split="stratified"))
    assert np.array_equal(masks_of(drawn), masks_of(graph().split("stratified")))
    several(file, **{name: column.T for name, column in columns.items()})
    with pytest.raises(DataError, match="a split a row: pass the transpose"):
        load_dataset(compose_dataset("npz", path=str(file), split=0))
    several(file, **{name: column[:, 0] for name, column in columns.items()})
    with pytest.raises(DataError, match="the masks have one split: leave it out"):
        load_dataset(compose_dataset("npz", path=str(file), split=0))


def test_random_split_is_disjoint_and_leaves_unlabelled_nodes_out() -> None:
    labels = np.where(np.arange(100) < 10, -1, 0)
    masks = random_split(labels, 0.6, 0.2, seed=0)
    assert [int(mask.sum()) for mask in masks.values()] == [54, 18, 18]
    assert not sum(mask.astype(int) for mask in masks.values())[:10].any()
    assert max(sum(mask.astype(int) for mask in masks.values())) == 1


def test_random_split_does_not_depend_on_the_platform() -> None:
    train = random_split(np.zeros(12, int), 0.25, 0.25, seed=0)["train_mask"]
    assert np.flatnonzero(train).tolist() == [1, 2, 10]  # recorded once: PCG64 gives the same numbers on every platform


@pytest.mark.parametrize(("train", "val"), [(0, 0.5), (0.8, 0.3), (0.5, -0.1)])
def test_impossible_fractions(train: float, val: float) -> None:
    with pytest.raises(ConfigError, match="are no split"):
        random_split(np.zeros(10, int), train, val, seed=0)


def test_tiny_graphs_still_train() -> None:
    assert random_split(np.zeros(3, int), 0.01, 0.0, seed=0)["train_mask"].sum() == 1


def test_few_label_split() -> None:
    labels = np.array([0] * 50 + [1] * 7 + [2] * 30)
    masks = few_label_split(labels, train_per_class=5, num_val=20, seed=0)
    assert np.bincount(labels[masks["train_mask"]]).tolist() == [5, 5, 5]
    assert [int(mask.sum()) for mask in masks.values()] == [15, 20, 52]
    assert (sum(mask.astype(int) for mask in masks.values()) == 1).all()
    other = few_label_split(labels, train_per_class=5, num_val=20, seed=1)
    assert not np.array_equal(masks["train_mask"], other["train_mask"])
    with pytest.raises(ConfigError, match="choose 1 to 7, the smallest class"):
        few_label_split(labels, train_per_class=8, num_val=20, seed=0)
    with pytest.raises(ConfigError, match="choose 0 to 72"):
        few_label_split(labels, train_per_class=5, num_val=73, seed=0)
