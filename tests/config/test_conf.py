"""Every YAML file composes and binds its target, and the keys that scripts rely on keep their names and types."""

import inspect
from functools import cache
from importlib import import_module
from pathlib import Path
from types import NoneType

import pytest
import yaml
from omegaconf import OmegaConf

from fullgnn.config import Config, MinibatchConfig, conf_dir
from fullgnn.config.compose import WARMUP, compose, load_config
from fullgnn.config.schema import OF_SPLIT
from fullgnn.errors import ConfigError
from fullgnn.graph.datasets import SPLIT_KEYS
from tests.cases import GROUPS as CHOSEN

GROUPS = (*CHOSEN, "train", "runtime", "loader")
OF_SAMPLED_TRAINING = ("sampler", "loader", "cache", "codec")
ALONE = ("experiment", "train")  # groups that set what belongs to other groups
APART = ("hardware", "tuning")  # groups outside a run's configuration; other tests read these files
CHOICES = [
    (path.parent.name, path.stem)
    for path in sorted(conf_dir().glob("*/*.yaml"))
    if path.stem != "base" and path.parent.name not in APART
]  # the other choices of reorder include reorder/base.yaml

PROGRAM = {
    "dataset": set(),
    "task": {"labels"},
    "model": {"in_channels", "out_channels", "seed"},
    "scheme": {"world", "kernel", "meter"},
    "kernel": set(),
    "optimizer": {"params"},
    "schedule": {"optimizer"},
    "partition": {"adj", "train_mask", "num_parts", "seed"},
    "sampler": {"graph", "num_hops", "seed"},
    "cache": set(),
    "codec": set(),
}
"""Arguments that the program passes to a group's target beside the YAML's keys; a task that finds links gets ``links``
in place of ``labels``."""

KEYS = {
    "run_dir": str,
    "seed": int,
    "dataset.name": str,
    "dataset.root": str,
    "dataset.path": NoneType,
    "dataset.scale": float,
    "dataset.symmetrize": bool,
    "model.hidden_channels": int,
    "model.num_layers": int,
    "model.dropout": float,
    "model.input_dropout": NoneType,
    "normalization": str,
    "train.epochs": int,
    "train.table": str,
    "optimizer.lr": float,
    "optimizer.weight_decay": float,
    "train.eval_every": int,
    "scheme.replication": int,
    "scheme.fetch": str,
    "scheme.stage_order": str,
    "scheme.exchange": str,
    "scheme.split_rows": bool,
    "scheme.wire_dtype": NoneType,
    "partition.name": str,
    "optimizations.spmm_order": str,
    "optimizations.cache_aggregation": str,
    "optimizations.skip_input_gradient": bool,
    "optimizations.fold_normalization": bool,
    "optimizations.loss_rows_only": str,
    "optimizations.sparse_features": str,
    "optimizations.offload": str,
    "reorder.scope": str,
    "reorder.num_blocks": NoneType,
    "reorder.cluster_size": int,
    "runtime.nproc": NoneType,
    "runtime.device": str,
    "runtime.backend": str,
    "runtime.dtype": str,
    "runtime.precision": str,
    "runtime.threads": NoneType,
    "runtime.cache_dir": NoneType,
    "runtime.cuda_graph": str,
    "runtime.deterministic": bool,
    "runtime.check_memory": bool,
    "runtime.independent_tasks": bool,
}
"""The public keys and the types of their defaults."""


def target_of(node: dict) -> object:
    module, _, name = node["_target_"].rpartition(".")
    return getattr(import_module(module), name)


def test_every_folder_is_a_known_group() -> None:
    folders = {path.name for path in conf_dir().iterdir() if path.is_dir()}
    assert {*GROUPS, "hardware"} <= folders <= {*GROUPS, *APART}
    assert {group for group, _ in CHOICES} == set(GROUPS)


def together(group: str, choice: str) -> list[str]:
    """``choice``, and those of other groups that have the same number, so that one composition serves many cases."""
    if group in ALONE:
        return [f"{group}={choice}"]
    of: dict[str, list[str]] = {}
    for other, of_other in CHOICES:
        if other not in ALONE and (other in OF_SAMPLED_TRAINING) == (group in OF_SAMPLED_TRAINING):
            of.setdefault(other, []).append(of_other)
    number = of[group].index(choice)
    return [f"{other}={choices[number]}" for other, choices in of.items() if number < len(choices)]


@cache
def composed(*choices: str, sampled: bool) -> Config:
    return load_config(compose(*choices, name="minibatch" if sampled else "config"))


def test_the_keys_of_a_split_are_written_once() -> None:
    base = yaml.safe_load((conf_dir() / "dataset" / "base.yaml").read_text())
    assert base == dict.fromkeys(SPLIT_KEYS) and set(OF_SPLIT) == set(SPLIT_KEYS)


@pytest.mark.sample(6)
@pytest.mark.parametrize(("group", "choice"), CHOICES)
def test_every_choice_composes_and_binds_its_target(group: str, choice: str) -> None:
    sampled = group in OF_SAMPLED_TRAINING or choice == "minibatch"
    cfg = composed(*together(group, choice), sampled=sampled)
    assert isinstance(cfg, MinibatchConfig if sampled else Config)
    if group in PROGRAM:
        node = getattr(cfg, group)
        target = target_of(node)
        parameters = inspect.signature(target).parameters
        keys = {
            key
            for key in node
            if not key.startswith("_")
            and (key in parameters or key not in ("name", "symmetrize", *WARMUP, *SPLIT_KEYS))
        }
        program = {"links"} if "links" in parameters else PROGRAM[group]
        inspect.signature(target).bind(**dict.fromkeys(keys | program))  # raises if the keys do not fit
        assert not keys & program
    if group == "reorder":
        assert cfg.reorder.name == choice
        method = dict(cfg.reorder.method)
        keys = {key for key in method if not key.startswith("_")}
        inspect.signature(target_of(method)).bind("adj", "seed", **dict.fromkeys(keys))
    if group in ("model", "task", "scheme", "partition", "kernel", "optimizer", "schedule"):
        assert getattr(cfg, group)["name"] == choice  # the name in records


@pytest.mark.parametrize(
    ("task", "metric"),
    [
        ("node_classification", "roc_auc"),
        ("node_regression", "r2"),
        ("link_ranking", "recall@5"),
        ("link_prediction", "mrr"),
    ],
)
def test_a_text_is_a_list_of_one_and_not_of_its_letters(task: str, metric: str) -> None:
    assert load_config(compose(f"task={task}", f"task.metrics={metric}")).task["metrics"] == [metric]
    assert load_config(compose(f"task={task}", f"task.metrics=[{metric}]")).task["metrics"] == [metric]


def test_the_public_keys_keep_their_names_and_types() -> None:
    choices = [("dataset=npz", "dataset.name=x"), ("dataset=synthetic",), ("dataset=planetoid",)]
    structured = [OmegaConf.structured(composed(*overrides, sampled=False)) for overrides in choices]
    for key, kind in KEYS.items():
        values = [OmegaConf.select(cfg, key, default="absent") for cfg in structured]
        assert kind in map(type, values), (key, values)
        assert all(value == "absent" or type(value) is kind for value in values), (key, values)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("overrides", "key", "value"),
    [
        (["scheme=1.5d"], "scheme.replication", 2),
        (["scheme=1d"], "scheme.replication", 1),
        ([], "reorder.scope", "block"),
        ([], "reorder.num_blocks", None),
        ([], "normalization", "sym"),
        (["dataset=cora"], "dataset.symmetrize", True),
        (["dataset=pubmed"], "dataset.name", "pubmed"),
        (["dataset=reddit-like"], "dataset.num_nodes", 232965),
        (["dataset=reddit-like"], "dataset.num_edges", 114848857),
        (["dataset=proteins-like"], "dataset.num_nodes", 132534),
        (["dataset=proteins-like"], "dataset.num_edges", 79255038),
        (["dataset=archaea-like"], "dataset.num_nodes", 1644228),
        (["dataset=archaea-like"], "dataset.num_edges", 206436882),
        (["dataset=products-like"], "dataset.num_nodes", 2449029),
        (["dataset=products-like"], "dataset.num_edges", 126167181),
        (["reorder=metis"], "reorder.cluster_size", 200),
        (["reorder=metis", "reorder.cluster_size=50"], "reorder.method.cluster_size", 50),
        (["reorder=slashburn"], "reorder.method.hub_share", 0.005),
        (["model.input_dropout=0.1"], "model.input_dropout", 0.1),
        (["optimizer.lr=1"], "optimizer.lr", 1.0),  # an integer is accepted for a number
        (["model.dropout=0"], "model.dropout", 0.0),
    ],
)
def test_defaults_and_presets(overrides: list[str], key: str, value: object) -> None:
    selected = OmegaConf.select(OmegaConf.structured(composed(*overrides, sampled=False)), key)
    assert selected == value
    assert type(selected) is type(value)


WRONG = {
    "train.epoch=5": "unknown configuration key train.epoch: did you mean train.epochs?",
    "epochs=5": "unknown configuration key epochs: did you mean train.epochs?",
    "datset.name=cora": "unknown configuration key datset.name: did you mean dataset.name?",
    "models=gcn": "unknown configuration key models: did you mean model?",
    "+train.foo=1": "unknown configuration key train.foo: the keys of train in conf/ are checkpoint_every, clip_norm, ",
    "+model.foo=1": "unknown configuration key model.foo: the keys of model in conf/ are aggregation, alpha, ",
    "foo=1": "unknown configuration key foo: the keys are codec, dataset, kernel, ",
    "dataset.scale=0.5": "dataset.scale is not a key of the chosen dataset: it belongs to dataset=rmat or",
    "optimizer.lr=abc": "optimizer.lr=abc does not fit: it takes a number",
    "train.epochs=2.5": "train.epochs=2.5 does not fit: it takes an integer",
    "runtime.nproc=two": "runtime.nproc=two does not fit: it takes an integer or null",
    "train.save_predictions=maybe": "train.save_predictions=maybe does not fit: it takes true or false",
    "run_dir=null": "run_dir=null does not fit: it takes a text",
    "dataset=synthetic dataset.scale=abc": "dataset.scale=abc does not fit: it takes a number",
    "model.hidden_channels=x": "model.hidden_channels=x does not fit: it takes an integer",
    "model.hidden_channels=null": "model.hidden_channels=null does not fit: it takes an integer",
    "scheme=1.5d scheme.replication=two": "scheme.replication=two does not fit: it takes an integer",
    "scheme=2d": "scheme=2d is not known: choose one of 1.5d, 1d",
    "scheme=2": "a number or null is no choice of dataset, model, scheme or another group: give a name",
    "experiment=ful": "experiment=ful is not known: choose one of cagnet-1.5d, cagnet-1d, citeseer-appnp, cora-",
    "dataset=nope": "dataset=nope is not known: choose one of amazon-ratings, amazon0601-like, archaea-like, ",
    "reorder=rmc": "reorder=rmc is not known: choose one of degree, metis, none, rcm, shuffle, slashburn",
    "reorder=rcm,metis": "reorder=rcm,metis gives several values: add -m to sweep over them",
    "normalization=symmetric": "normalization=symmetric is not known: choose one of sym, row, none",
    "optimizations.offload=true": "optimizations.offload=True is not known: choose one of auto, always, never",
    "train.table=long": "train.table=long is not known: choose one of short, full",
    "~runtime": "runtime.backend has no value: give runtime.backend=...",
    "optimizations.cache_aggregation=1": "optimizations.cache_aggregation=1 is not known: choose one of auto, true",
    "optimizations.loss_rows_only=on": "optimizations.loss_rows_only=on is not known: choose one of auto, true, false",
    "runtime.device=null": "runtime.device=null is not known: choose one of auto, cpu, cuda",
    "runtime.dtype=float16": "runtime.dtype=float16 is not known: choose one of float32, float64",
    "train.epochs=0": "train.epochs=0 is out of range: it must be finite and at least 1",
    "optimizer.lr=-1": "optimizer.lr=-1.0 is out of range: it must be finite and at least 0",
    "optimizer.lr=nan": "optimizer.lr=nan is out of range: it must be finite and at least 0",
    "optimizer.lr=inf": "optimizer.lr=inf is out of range: it must be finite and at least 0",
    "reorder.num_blocks=0": "reorder.num_blocks=0 is out of range: it must be finite and at least 1",
    "optimizer.lr=null": "optimizer.lr=null does not fit: it takes a number",
    "optimizer.betas=0.9": "optimizer.betas=0.9 does not fit: it takes a list of 2, each element a number, as in [a,b]",
    "optimizer.betas=[0.9]": "optimizer.betas=[0.9] does not fit: it takes a list of 2, each element a number",
    "optimizer.betas=[0.9,x]": "optimizer.betas=[0.9, 'x'] does not fit: it takes a list of 2, each element a number",
    "optimizer.betas=[0.9,1]": "optimizer.betas=[0.9, 1.0] is out of range: it must be at least 0 and below 1",
    "task.metrics=5": "task.metrics=5 does not fit: it takes a list, each element a text, as in [a,b] or null",
    "task.metrics={a:1}": "task.metrics={'a': 1} does not fit: it takes a list, each element a text, as in [a,b] or",
    "optimizer.momentum=0.9": "optimizer.momentum is not a key of the chosen optimizer: it belongs to optimizer=sgd",
    "optimizer=sgd optimizer.nesterov=true": "optimizer.nesterov=true needs a momentum: give optimizer.momentum",
    "optimizer=adm": "optimizer=adm is not known: choose one of adam, adamw, sgd",
    "schedule=cosine schedule.T_max=0": "schedule.T_max=0 is out of range: it must be at least 1",
    "schedule=cosine schedule.T_max=2.5": "schedule.T_max=2.5 does not fit: it takes an integer or null",
    "schedule=step schedule.step_size=null": "schedule.step_size=null does not fit: it takes an integer",
    "schedule.warmup_epochs=-1": "schedule.warmup_epochs=-1 is out of range: it must be at least 0",
    "schedule.warmup_start=0": "schedule.warmup_start=0.0 is out of range: it must be above 0 and at most 1",
    "schedule.warmup_epochs=300": "schedule.warmup_epochs=300 is longer than the training: train.epochs=200",
    "train.clip_norm=0": "train.clip_norm=0.0 is out of range: it must be finite and above 0",
    "train.patience=5 train.eval_every=0": "train.patience=5 counts evaluations: set train.eval_every",
    "runtime.threads=100000": "runtime.threads=100000 is out of range: it must be at most 4096",
    "runtime.nproc=4097": "runtime.nproc=4097 is out of range: it must be at most 4096",
    "runtime.timeout_s=1e300": "runtime.timeout_s=1e+300 is out of range: it must be at most 100000000",
    "runtime.dry_run=true world_size=1000001": "world_size=1000001 is out of range: it must be at most 1000000",
    "seed=-1": "seed=-1 is out of range: it must be finite and at least 0",
    "seed=9223372036854775808": "seed=9223372036854775808 is too large: it must be below 2^63",
    "train.epochs=9223372036854775808": "train.epochs=9223372036854775808 is too large: it must be below 2^63",
    "model.hidden_channels=99999999999999999999": "model.hidden_channels=99999999999999999999 is too large",
    "optimizer.betas=[99999999999999999999,0]": "optimizer.betas=99999999999999999999 is too large",
    f"train.epochs={'9' * 5000}": "a number on the command line has thousands of digits: give one below 2^63",
    "optimizer.lr": "argument optimizer.lr cannot be read: write key=value",
    "~model": "model has no value: give model=...",
    "~train.epochs": "train.epochs cannot be removed: leave out ~train.epochs",
    "~model.name": "the YAML of model has no key name",
    "reorder=slashburn reorder.method.hub_share=abc": "reorder.method.hub_share=abc does not fit: it takes a number",
    "reorder=slashburn +reorder.method.foo=1": "unknown configuration key reorder.method.foo",
    "model._target_=no.such.Model": "model._target_=no.such.Model cannot be used: No module named 'no'",
}


@pytest.mark.sample(10)
@pytest.mark.parametrize("overrides", WRONG)
def test_a_wrong_configuration_is_one_line_that_names_the_cure(overrides: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(compose(*overrides.split()))
    message = str(caught.value)
    assert message.startswith(WRONG[overrides])
    assert "\n" not in message


WRONG_SAMPLED = {
    "sampler=nope": "sampler=nope is not known: choose one of",
    "sampler.fanouts=5": "sampler.fanouts=5 does not fit: it takes a list, each element an integer, as in [a,b]",
    "sampler.fanout=5": "unknown configuration key sampler.fanout: did you mean sampler.fanouts?",
    "loader.batch_size=x": "loader.batch_size=x does not fit: it takes an integer",
    "loader.batch_size=9223372036854775808": "loader.batch_size=9223372036854775808 is too large",
    "loader.batchsize=5": "unknown configuration key loader.batchsize: did you mean loader.batch_size?",
    "train.checkpoint_every_batch=5": "unknown configuration key train.checkpoint_every_batch: did you mean",
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("overrides", WRONG_SAMPLED)
def test_a_wrong_configuration_of_sampled_training_is_one_line(overrides: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(compose(*overrides.split(), name="minibatch"))
    assert str(caught.value).startswith(WRONG_SAMPLED[overrides]) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("overrides", "epochs"),
    [
        ([], 3),
        (["train.epochs=7"], 7),
        (["experiment=cora-sgc"], 100),
        (["schedule=cosine", "schedule.warmup_epochs=10"], 3),  # no error: these are the settings of the real job
    ],
)
def test_a_dry_run_has_three_epochs_unless_they_are_given(overrides: list[str], epochs: int) -> None:
    assert load_config(compose("runtime.dry_run=true", "world_size=8", *overrides)).train.epochs == epochs
    if not overrides:
        assert load_config(compose()).train.epochs == 200


def test_conf_is_the_folder_beside_the_package() -> None:
    assert conf_dir() == Path(__file__).resolve().parents[2] / "conf"
