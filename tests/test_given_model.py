"""train_graph with a model of the caller's, as a class or an instance, and with a folder of YAML files."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from fullgnn import given_model
from fullgnn.api import train_graph
from fullgnn.errors import ConfigError
from fullgnn.models import GCN
from fullgnn.nn import Contract, GCNConv, NodeEmbedding
from fullgnn.storage.record import RunRecord
from tests.calls_here import CPU, club, comparable, curve
from tests.commands import run_command, torchrun

NET = """
import torch
from fullgnn.nn import Contract, GCNConv

class Net(torch.nn.Module):
    def __init__(self, in_channels: int, out_channels: int, seed: int, hidden: int = 4):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.first, self.second = GCNConv(in_channels, hidden, generator), GCNConv(hidden, out_channels, generator)

    def contract(self):
        return Contract(num_blocks=2, restricts_output=True)

    def forward(self, x, blocks):
        return self.second(self.first(x, blocks[0]).relu(), blocks[1])
"""
SCRIPT = """
import os
import fullgnn
from fullgnn.graph.datasets import karate
{net}
graph = karate.load(train_per_class=4, num_val=8, seed=0)
options = ["train.epochs=6", "runtime.device=cpu", "train.checkpoint_every=6"]
record = fullgnn.train_graph(graph, *options, {options}, run_dir="run")
if os.environ.get("RANK", "0") == "0":
    print("RECORD", record.model, record.world_size, record.run_dir)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tests run in a folder of their own, with a module ``netmodule`` and a folder ``conf``."""
    (tmp_path / "netmodule.py").write_text(NET)
    (tmp_path / "conf" / "model").mkdir(parents=True)
    (tmp_path / "conf/model/net.yaml").write_text("_target_: netmodule.Net\nname: net\nhidden: 4\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "netmodule", raising=False)
    return tmp_path


def net() -> Any:
    import netmodule  # type: ignore[import-not-found]  # the fixture has written it

    return netmodule.Net


def target_in(run_dir: str) -> dict[str, Any]:
    """The model in the configuration of a run."""
    return yaml.safe_load(Path(run_dir, "config.yaml").read_text())["model"]


@pytest.mark.sample(2)
def test_a_class_is_the_choice_of_a_yaml_that_names_it() -> None:
    runs: dict[str, RunRecord] = {
        "yaml": train_graph(club(), CPU, config_dir="conf", model="net", run_dir="yaml"),
        "class": train_graph(club(), CPU, model=net(), run_dir="class"),
        "keys": train_graph(club(), CPU, model={"_target_": net(), "hidden": 4}, run_dir="keys"),
        "mapping": train_graph(club(), CPU, {"model": net(), "model.hidden": 4}, run_dir="mapping"),
        "dotted": train_graph(club(), CPU, {"model._target_": net()}, "model.hidden=4", run_dir="dotted"),
        "later": train_graph(
            club(), CPU, "model=sage", "model.hidden=3", {"model": net()}, "model.hidden=4", run_dir="later"
        ),
        "instance": train_graph(club(), CPU, model=net()(34, 2, 0), run_dir="instance"),
        "label": train_graph(club(), CPU, model={"_target_": net(), "name": "mine"}, run_dir="label"),
    }
    for name, record in runs.items():
        assert curve(name) == curve("yaml")
        label = {"yaml": "net", "label": "mine"}.get(name, "Net")
        assert comparable(record) | {"model": ""} == comparable(runs["yaml"]) | {"model": ""} and record.model == label
        assert target_in(name)["_target_"] == "netmodule.Net" and target_in(name).get("hidden", 4) == 4
    wider = train_graph(club(), CPU, model={"_target_": net(), "hidden": 5}, run_dir="wider")
    assert wider.num_parameters > runs["yaml"].num_parameters and target_in("wider")["hidden"] == 5
    record = train_graph(club(), CPU, {"model": net()}, model="sage", run_dir="sage")
    assert record.model == "sage"  # the later one holds


def test_a_local_class_a_function_and_a_class_of_the_script_are_models() -> None:
    class Local(net()):  # type: ignore[misc]
        pass

    of_script = type("Net", (net(),), {"__module__": "__main__"})

    def make(in_channels: int, out_channels: int, seed: int, hidden: int) -> torch.nn.Module:
        return net()(in_channels, out_channels, seed, hidden)

    train_graph(club(), CPU, model=net(), run_dir="class")
    train_graph(club(), CPU, model=Local, run_dir="local")
    train_graph(club(), CPU, model={"_target_": make, "hidden": 4}, run_dir="function")
    train_graph(club(), CPU, model=of_script, run_dir="script")
    assert curve("local") == curve("class") == curve("function") == curve("script")
    assert target_in("script") == {"_target_": "__main__.Net", "name": "Net"}
    assert target_in("local")["_target_"].endswith("<locals>.Local")


def test_an_instance_has_the_parameters_of_the_best_epoch(folder: Path) -> None:
    keys = {"train": {"epochs": 12, "checkpoint_every": 12}, "optimizer.lr": 0.3}
    model = net()(34, 2, 0)
    for parameter in model.first.parameters():
        parameter.requires_grad_(True)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    parts = [id(value) for value in model.state_dict(keep_vars=True).values()]
    record = train_graph(club(), CPU, keys, model=model, run_dir="run")
    best = torch.load("run/checkpoints/epoch_000012/best.pt", weights_only=True)["best"]
    last = torch.load("run/checkpoints/epoch_000012/state.pt", weights_only=True)["state"]
    assert best["epoch"] == record.best_epoch < 12
    for name, value in model.state_dict().items():
        assert torch.equal(value, best["model"][name]) and not torch.equal(value, before[name])
    assert not all(torch.equal(value, last["model"][name]) for name, value in model.state_dict().items())
    assert [id(value) for value in model.state_dict(keep_vars=True).values()] == parts  # in place
    assert model.training and all(value.grad is None for value in model.parameters())

    trained = {name: value.clone() for name, value in model.state_dict().items()}
    fresh = net()(34, 2, 0)
    again = train_graph(club(), CPU, keys, model=fresh, run_dir="run", resume="auto")  # nothing is left to train
    assert again == record and all(torch.equal(value, trained[name]) for name, value in fresh.state_dict().items())
    with pytest.raises(ConfigError, match="lr"):
        train_graph(club(), CPU, {"optimizer.lr": -1.0}, model=model, run_dir="failing")
    with pytest.raises(ConfigError, match="holds an earlier run"):
        train_graph(club(), CPU, model=model, run_dir="run")
    assert all(torch.equal(value, trained[name]) for name, value in model.state_dict().items())
    train_graph(club(), CPU, model=model, run_dir="second")
    assert not all(torch.equal(value, trained[name]) for name, value in model.state_dict().items())


class Embedding(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.conv = NodeEmbedding(4, 0), GCNConv(4, 2, torch.Generator())

    def contract(self) -> Contract:
        return Contract(num_blocks=1)


class WithoutSeed(torch.nn.Module):
    def __init__(self, in_channels: int, out_channels: int):
        super().__init__()


class WithoutBlocks(torch.nn.Linear):
    """A model that states the number of its blocks, but in a place where nobody looks."""

    num_blocks = 1

    def __init__(self, in_channels: int, out_channels: int, seed: int):
        super().__init__(in_channels, out_channels)

    def contract(self) -> Contract:
        return Contract(restricts_output=True)


class NoModule:
    def __init__(self, in_channels: int, out_channels: int, seed: int):
        pass


def of_main() -> type:
    return type("Net", (GCN,), {"__module__": "__main__"})


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        (of_main, {"runtime.nproc": 2}, r"model=Net is of __main__, .*move it to a module; or .*set runtime.nproc=1$"),
        (lambda: type("Net", (GCN,), {}), {"runtime.nproc": 2}, r"model=Net is no name .*move it to a module"),
        (lambda: GCN(34, 2), {"runtime.nproc": 2}, r"an instance of GCN: pass the class.*set runtime.nproc=1$"),
        (of_main, {"runtime.dry_run": True, "world_size": 2}, "move it to a module; .*leave out runtime.dry_run$"),
        (lambda: GCN(34, 2).double(), {}, "parameters of float64, and runtime.dtype=float32: set runtime.dtype"),
        (Embedding, {}, "trains a vector for each node of the graph: pass the class"),
        (lambda: torch.nn.Linear(34, 2), {}, r"Linear has no method contract\(\): a model has one that"),
        (lambda: WithoutBlocks, {}, r"^WithoutBlocks.contract\(\) states num_blocks=None: a model has one"),
        (lambda: {"_target_": GCN(34, 2), "dropout": 0.1}, {}, "model.dropout"),
        (lambda: WithoutSeed, {}, r"model=WithoutSeed: WithoutSeed\(\) got an unexpected keyword argument 'seed'"),
        (lambda: NoModule, {}, "model=NoModule is a NoModule: a model must be a torch.nn.Module"),
        (lambda: {"_target_": GCN, "hiden_channels": 3}, {}, "unknown configuration key model.hiden_channels"),
        (lambda: 3.5, {}, "no choice"),
    ],
)  # fmt: skip
def test_a_model_that_cannot_be_trained_is_one_line(model: Any, settings: dict, message: str, launches: list) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        train_graph(club(), CPU, settings, model=model(), run_dir="run")
    assert "\n" not in str(error.value) and not launches and not Path("run").exists()


@pytest.mark.parametrize("config_dir", ["missing", 7])
def test_a_folder_that_is_none_is_one_line(config_dir: Any) -> None:
    with pytest.raises(ConfigError, match=f"^config_dir={config_dir} is no folder: give the folder of your own YAML"):
        train_graph(club(), CPU, config_dir=config_dir)


@pytest.mark.sample(4)
def test_a_class_trains_on_two_ranks_and_is_predicted_with(folder: Path, every_case: bool) -> None:
    """The class is one of the script under torchrun. A prediction calls it where it is named."""
    (folder / "script").mkdir()
    (folder / "script" / "netmodule.py").write_text(NET)  # beside the script, which runs in another folder
    ways = {
        "started": ([sys.executable], "", "'runtime.nproc=2', config_dir='../conf', model='net'"),
        "torchrun": (torchrun(2), NET, "config_dir='../conf', model={'_target_': Net, 'hidden': 4}"),
    }
    losses = []
    for name, (command, code, options) in [*ways.items()][: None if every_case else 1]:
        (folder / name).mkdir()
        script = folder / "script" / f"{name}.py"
        script.write_text(SCRIPT.format(net=code, options=options))
        done = run_command(command, str(script), cwd=folder / name)
        assert done.status == 0, done.output
        (line,) = [line for line in done.output.splitlines() if line.startswith("RECORD")]
        assert line.endswith(str(folder / name / "run"))
        losses.append([epoch["loss"] for epoch in curve(str(folder / name / "run"))])
    assert len(losses[0]) == 6 and losses[0] == losses[-1]
    predict = [sys.executable, "-m", "fullgnn.predict"]
    refused = run_command(predict, "checkpoint=started/run", "runtime.device=cpu", cwd=folder)
    assert refused.status == 1 and "model._target_=netmodule.Net, which no model of fullgnn calls" in refused.output
    options = "checkpoint=started/run", "runtime.device=cpu", "model._target_=netmodule.Net"
    done = run_command(predict, *options, cwd=folder)
    assert done.status == 0 and (folder / "started/run/predictions/outputs.npy").is_file(), done.output


def test_the_dotted_name_of_a_class_is_that_of_the_object() -> None:
    given = given_model.GivenModel(GCN)
    assert given.name == "fullgnn.models.gcn.GCN" and given.why_only_here == ""
