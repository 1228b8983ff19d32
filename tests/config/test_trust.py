"""What a file asks for is called only where a YAML file of fullgnn, of the same group, calls the same.

The checkpoint that is poisoned here is that of ``tests/storage/written_before``.
"""

import functools
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from fullgnn.config.compose import compose, load_config
from fullgnn.config.trust import CALLING, calls_of, check_calls, choices_of, plain_config, trusted_node
from fullgnn.costs.hardware import read_hardware
from fullgnn.engine.prediction import Trained, read_trained
from fullgnn.engine.run_folder import check_run_dir
from fullgnn.errors import ConfigError, DataError, FullGNNError
from fullgnn.predict import PredictionRequest, check_no_download, check_request, load_request, prediction_config
from fullgnn.storage import folder
from fullgnn.storage.torch_file import load
from tests.commands import run_command, torchrun
from tests.storage.records import seal

BEFORE = Path(__file__).parents[1] / "storage" / "written_before"
PREDICT = [*torchrun(1)[:2], "fullgnn.predict"]
MACHINE = ("runtime.device=cpu", "runtime.threads=1")
OWN = "tests.config.own_model.Own"

_OTHER = {"model": "fullgnn.tasks.node_classification", "dataset": "fullgnn.models.GCN"}
POISONS: dict[str, Callable[[str, dict[str, Any]], dict[str, Any]]] = {
    "os.system": lambda group, node: node | {"_target_": "os.system"},
    "os.system with its argument": lambda group, node: {"_target_": "os.system", "command": "true", "name": "x"},
    "write_text": lambda group, node: node | {"_target_": "fullgnn.storage.folder.write_text"},
    "of another group": lambda group, node: node | {"_target_": _OTHER.get(group, "fullgnn.graph.datasets.npz.load")},
    "partial": lambda group, node: node | {"_partial_": not node.get("_partial_", False)},
    "a number as partial": lambda group, node: node | {"_partial_": 3},
    "nested": lambda group, node: node | {"name": {"_target_": "os.system", "command": "true"}},
    "nested in a list": lambda group, node: node | {"name": [[{"_target_": "os.system"}]]},
    "a list": lambda group, node: node | {"_target_": ["os.system"]},
    "a mapping": lambda group, node: node | {"_target_": {"_target_": "os.system"}},
    "an interpolation": lambda group, node: node | {"_target_": "${oc.env:HOME}"},
    "nothing": lambda group, node: node | {"_target_": None},
    "no target": lambda group, node: {key: value for key, value in node.items() if key != "_target_"},
    "no mapping": lambda group, node: [node],  # type: ignore[dict-item, return-value]
}


def settings() -> dict[str, Any]:
    """The configuration of a run of sampled training, which has all groups, as a checkpoint has it."""
    return plain_config(_settings())


@functools.cache
def _settings() -> dict[str, Any]:
    return asdict(load_config(compose("dataset=karate", name="minibatch")))


@functools.cache
def request_of(*given: str) -> PredictionRequest:
    return load_request(["checkpoint=FILE", *MACHINE, *given])


def trained(config: dict[str, Any]) -> Trained:
    before = read_trained(str(BEFORE / "run"), "best")
    return replace(before, run_config=config)


@pytest.mark.sample(5)
@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("group", CALLING)
def test_no_group_of_a_checkpoint_is_called(group: str, poison: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called = mock.Mock()
    monkeypatch.setattr(os, "system", called)
    monkeypatch.setattr(folder, "write_text", called)
    config = settings()
    if group == "reorder" and poison not in ("no mapping", "nested", "nested in a list"):
        if poison == "no target":
            config[group]["method"] = {"_partial_": True}
        else:
            config[group]["method"] = POISONS[poison](group, config[group]["method"])
    else:
        config[group] = POISONS[poison](group, config[group])
    request = request_of()
    with pytest.raises(FullGNNError) as caught:
        prediction_config(request, trained(plain_config(config)))
    message = str(caught.value)
    assert message.startswith("checkpoint=FILE: ") and group in message and "\n" not in message and len(message) < 800
    assert not called.called
    assert poison in ("no mapping", "nothing", "no target") or f"--config-dir=FOLDER {group}=" in message


@pytest.mark.parametrize("group", CALLING)
def test_every_choice_of_fullgnn_is_trusted_in_its_group_alone(group: str) -> None:
    for choice in choices_of(group):
        if not choice.calls:
            continue
        for other in CALLING:
            node: dict[str, Any] = {}
            for place, (target, partial) in choice.calls.items():
                below = node
                for key in place:
                    below = below.setdefault(key, {})
                below |= {"_target_": target} | ({"_partial_": True} if partial else {})
            assert calls_of(node) == choice.calls
            if group == other:
                assert check_calls(other, node, "FILE") is not None
            elif choice.calls not in [choice_there.calls for choice_there in choices_of(other)]:
                with pytest.raises(DataError):
                    check_calls(other, node, "FILE")


def test_keys_that_a_choice_does_not_have_are_refused() -> None:
    """Arguments that only the program gives, such as a seed or the masks, included."""
    for group, key in {"model": "in_channels", "partition": "adj", "scheme": "world", "task": "labels"}.items():
        node = settings()[group]
        assert trusted_node(group, node, "FILE") == node
        for odd in (key, "defaults", "_convert_", "_recursive_", "hydra", "unknown"):
            with pytest.raises(DataError, match=f"^FILE: {group}.{odd} is no key of its {group}: "):
                trusted_node(group, node | {odd: 1}, "FILE")
    with pytest.raises(DataError, match="^FILE: optimizations.defaults is no key of its optimizations: "):
        trusted_node("optimizations", {"defaults": ["/model: gcn"]}, "FILE")
    with pytest.raises(DataError, match="^FILE: it lacks dataset.path: |is no mapping|dataset"):
        trusted_node("dataset", {"_target_": "fullgnn.graph.datasets.blogcatalog.load"}, "FILE")


def test_what_a_prediction_does_not_need_is_not_taken_over(tmp_path: Path) -> None:
    config = settings()
    config["runtime"] |= {"cache_dir": str(tmp_path / "cache"), "dry_run": True, "nproc": 999, "dtype": "float64"}
    config |= {"run_dir": str(tmp_path / "run"), "resume": "auto", "overwrite": True, "hydra": {"run": {"dir": "x"}}}
    cfg = prediction_config(request_of(), trained(config))
    assert cfg.runtime.cache_dir is None and not cfg.runtime.dry_run and cfg.runtime.nproc is None
    assert cfg.runtime.dtype == "float64"
    assert (cfg.resume, cfg.overwrite) == ("never", False) and str(tmp_path) not in repr(cfg)
    given = request_of(f"runtime.cache_dir={tmp_path}")
    assert prediction_config(given, trained(config)).runtime.cache_dir == str(tmp_path)


def test_nothing_is_downloaded_to_a_folder_of_the_checkpoint(tmp_path: Path) -> None:
    config = settings()
    config["dataset"] = asdict(load_config(compose("dataset=cora")))["dataset"] | {"root": str(tmp_path / "there")}
    cfg = prediction_config(request_of(), trained(config))
    with pytest.raises(ConfigError, match=f"its dataset lacks the file {tmp_path}/there/.*: give dataset.root="):
        check_no_download(request_of(), cfg)
    check_no_download(request_of(f"dataset.root={tmp_path}"), cfg)
    assert not list(tmp_path.iterdir())


def test_an_interpolation_in_a_file_is_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_TEST", "hidden-value")
    text, config = "${oc.env:SECRET_OF_TEST}", settings()
    config["dataset"]["name"] = text
    cfg = prediction_config(request_of(), trained(config))
    assert cfg.dataset["name"] == text and "hidden-value" not in repr(cfg)
    given = request_of("dataset.name=${oc.env:SECRET_OF_TEST}")
    assert prediction_config(given, trained(config)).dataset["name"] == "hidden-value"  # the user's own
    for place, key in (("model", "hidden_channels"), ("optimizations", "spmm_order"), ("runtime", "dtype")):
        broken = settings()
        broken[place][key] = text
        with pytest.raises(FullGNNError) as caught:
            prediction_config(request_of(), trained(broken))
        assert text in str(caught.value) and "hidden-value" not in str(caught.value), caught.value
    profile = tmp_path / "profile.yaml"
    profile.write_text(f"name: {text}\nnear_bytes: {text}\n")
    with pytest.raises(ConfigError) as caught:
        read_hardware(profile)
    assert "hidden-value" not in str(caught.value) and "\n" not in str(caught.value)


def poisoned(tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """A run folder whose checkpoint has another configuration, with right checksums."""
    run = tmp_path / "run"
    shutil.copytree(BEFORE / "run", run)
    for file in run.glob("checkpoints/*/state.pt"):
        content = load(file)
        change(content["config"])
        torch.save(content, file)
        seal(file.parent)
    return run


def test_commands_call_nothing_and_write_nothing_elsewhere(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    nodes = {
        "kernel": {"_target_": "os.system", "command": f"touch {marker}", "name": "x"},
        "dataset": {"_target_": "fullgnn.storage.folder.write_text", "path": str(marker), "text": "x", "name": "x"},
    }
    for group, node in nodes.items():
        place = tmp_path / group
        run = poisoned(place, lambda config, group=group, node=node: config.update({group: node}))
        done = run_command(PREDICT, f"checkpoint={run}", f"out={place / 'out'}", *MACHINE, cwd=tmp_path)
        assert done.status == 1 and len(done.errors) == 1, done.output
        assert f"checkpoint={run}: it asks for {group}." in done.errors[0]
        assert not marker.exists() and not (place / "out").exists()


@pytest.mark.sample(2)
def test_a_model_of_the_user_is_named_by_the_command_line(tmp_path: Path) -> None:
    run = poisoned(tmp_path, lambda config: config["model"].update(_target_=OWN, name="own"))
    conf = tmp_path / "conf"
    (conf / "model").mkdir(parents=True)
    keys = dict(compose("model=gcn", "model.hidden_channels=99").model) | {"_target_": OWN, "name": "own"}
    (conf / "model" / "own.yaml").write_text(OmegaConf.to_yaml(keys))
    with pytest.raises(DataError, match=rf"model._target_={OWN}, .*: if the model is your own, give --config-dir=FOLDER"
                       r" model=own, or model._target_=... itself$"):  # fmt: skip
        check_request(load_request([f"checkpoint={run}", f"out={tmp_path / 'out'}", *MACHINE]))
    (tmp_path / "renamed").mkdir()
    renamed = poisoned(tmp_path / "renamed", lambda config: config["model"].update(_target_=OWN))
    with pytest.raises(DataError, match="give --config-dir=FOLDER model=NAME, or"):  # model=gcn is another one
        check_request(load_request([f"checkpoint={renamed}", f"out={tmp_path / 'out'}", *MACHINE]))
    for given in (["--config-dir", str(conf), "model=own"], [f"model._target_={OWN}"]):
        _, cfg = check_request(load_request([f"checkpoint={run}", f"out={tmp_path / 'out'}", *MACHINE, *given]))
        assert cfg.model["_target_"] == OWN and cfg.model["hidden_channels"] == 4  # of the trained run
    for given in (["model=sage"], [f"model._target_={OWN}x"], ["model=gcn"]):
        with pytest.raises(FullGNNError, match="model"):
            check_request(load_request([f"checkpoint={run}", f"out={tmp_path / 'out'}", *MACHINE, *given]))
    out = tmp_path / "out"
    own = [f"--config-dir={conf}", "model=own"]
    done = run_command(PREDICT, f"checkpoint={run}", f"out={out}", *own, *MACHINE, cwd=tmp_path)
    assert done.status == 0, done.output
    with np.load(BEFORE / "run" / "predictions.npz") as arrays:
        assert np.array_equal(arrays["logits"], np.load(out / "outputs.npy"))
    for flags in (["--config-dir=nowhere", "model=own"], ["--config-dir"], ["--config-file=x"]):
        done = run_command(PREDICT, f"checkpoint={run}", f"out={out}", *flags, cwd=tmp_path)
        assert done.status == 1 and len(done.errors) == 1 and flags[0].partition("=")[0] in done.errors[0]


def test_a_resumed_run_does_not_advise_what_a_checkpoint_asks_for(tmp_path: Path) -> None:
    run = poisoned(tmp_path, lambda config: config["model"].update(_target_="os.system"))
    keys = ["dataset=karate", "model.hidden_channels=4", "model.embedding_channels=2", "train.epochs=4"]
    cfg = load_config(compose(*keys, "schedule=cosine", "resume=auto", f"run_dir={run}", *MACHINE))
    with pytest.raises(DataError) as caught:
        check_run_dir(cfg)
    assert "it asks for model._target_=os.system, which no model of fullgnn calls" in str(caught.value)
    own = poisoned(tmp_path / "own", lambda config: config["model"].update(_target_=OWN))
    cfg = load_config(
        compose(*keys, "schedule=cosine", f"model._target_={OWN}", "resume=auto", f"run_dir={own}", *MACHINE)
    )
    assert check_run_dir(cfg) == own / "checkpoints" / "epoch_000004"


def test_a_configuration_of_other_things_is_refused() -> None:
    deep: Any = {}
    for _ in range(100):
        deep = {"a": deep}
    laughs: Any = ["x"] * 10
    for _ in range(12):
        laughs = [laughs] * 10
    for odd in (None, [], "x", {1: 2}, {"a": 10**400}, {"a": torch.zeros(2)}, {"a": "x" * 10**6}, deep, {"a": laughs}):
        with pytest.raises(DataError) as caught:
            plain_config(odd)
        assert len(str(caught.value)) < 300
