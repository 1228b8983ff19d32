"""The examples of docs/extending.md run, on several ranks, and give the exact result."""

import json
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from fullgnn.config import Config
from fullgnn.distributed import World
from fullgnn.engine import predict, set_up
from fullgnn.engine.passes import all_logits, loss_logits
from fullgnn.engine.run import make_scheme
from fullgnn.engine.state import FlatGradients
from fullgnn.kernels.support.aligned import to_aligned
from fullgnn.nn import Contract
from fullgnn.nn.contract import block_request
from fullgnn.schemes import Block
from fullgnn.tasks.task import part_of_loss
from fullgnn.telemetry.meter import Meter
from tests.cases import NUM_CLASSES, config, dense_graph, layout_overrides, multi_class, sharded
from tests.commands import environment, run_command
from tests.examples import PAGE, example, source
from tests.models.exactness import OneProcess, compare, in_one_process, step
from tests.oracle import normalize
from tests.schemes.training import assert_one_step_is_exact, step_of

pytestmark = pytest.mark.sample(2)  # its tests take seconds, or compile kernels

KINDS = ["symmetric", "directed", "weighted", "tiny", "corner"]


def commands() -> list[list[str]]:
    """The command lines of the page that train with an example, each as its words. What is said to torchrun is not
    among them: it is one of these lines, and starts slowly."""
    lines = re.findall(r"^    (python .*--config-dir=conf .*)$", PAGE.read_text(), re.MULTILINE)
    return [shlex.split(line) for line in lines if "runs/" not in line and not line.endswith("\\")]


def write_examples(folder: Path) -> None:
    """The folder ``mine`` of the page: every file of Python and YAML that it shows, under the name that it shows."""
    paragraph = r"`((?:mygnn|conf)/[\w./]+)`(?:[^\n]|\n(?!\n))*:"
    files = re.findall(rf"{paragraph}\n\n```(?:python|yaml)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for name, text in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.sample(4)
@pytest.mark.parametrize("command", commands(), ids=lambda command: " ".join(command[-3:-1]))
def test_the_commands_run_the_examples(command: list[str], tmp_path: Path) -> None:
    write_examples(tmp_path)
    done = run_command(
        [sys.executable, *command[1:]], f"run_dir={tmp_path / 'run'}", cwd=tmp_path, env=environment(tmp_path)
    )
    assert done.status == 0, done.output
    ran = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    chosen = [word.split("=") for word in command if (tmp_path / "conf" / f"{word.replace('=', '/')}.yaml").exists()]
    assert ["dataset", "ring"] in chosen
    for group, name in chosen:
        target = re.search(r"_target_: (mygnn\S+)", (tmp_path / "conf" / group / f"{name}.yaml").read_text())
        assert target is not None and target[1] in str(ran[group]) and ran[group]["name"] == name


@pytest.mark.sample(4)
def test_the_scheme_is_planned_dry_run_and_reported(tmp_path: Path) -> None:
    """By the lines of the page. They count the same bytes, and a plan does not need less memory than the run."""
    write_examples(tmp_path)
    page = PAGE.read_text().replace("\\\n", " ")
    lines = re.findall(r"^    (python .* (?:out=|run_dir=|)runs/\w+)$", page, re.MULTILINE)
    assert [shlex.split(line)[2].partition(".")[2] for line in lines] == ["plan", "train", "train", "report"]
    for line in lines:
        done = run_command([sys.executable, *shlex.split(line)[1:]], cwd=tmp_path, env=environment(tmp_path))
        assert done.status == 0, done.output
    plan, dry, run = (
        json.loads((tmp_path / "runs" / file).read_text())
        for file in ("plan/plan.json", "dry/record.json", "columns/record.json")
    )
    (option,) = [option for option in plan if option["world_size"] == 3]
    predicted = option["prediction"]
    received = [rank["bytes_received"]["all_reduce"] for rank in run["ranks"]]
    assert (option["scheme"], predicted["comm_bytes_per_rank"]) == ("columns", {"all_reduce": received})
    assert dry["comm_bytes_per_epoch"] == {"all_reduce": received[1]}
    assert 1 <= predicted["peak_tensor_bytes"] / run["peak_tensor_bytes"] < 1.1
    assert predicted["time_ms"]["spmm"] > 0 and predicted["time_ms"]["comm"] > 0
    report = (tmp_path / "runs" / "columns" / "report.html").read_text()
    assert "columns" in report and "received in an epoch" in report


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["num_nodes=9", "num_edges=9", "num_features=9", "num_classes=2"], "needs a graph: give dataset="),
        (["dataset=ring", "replications=1"], "replications are those of 1.5D"),
        (["dataset=ring", "scaling=true"], "leave out scaling=true"),
        (["dataset=ring", "model=gat"], "model=gat reads edges, which is not planned in scheme=columns: choose"),
    ],
)
def test_what_is_not_planned_of_the_scheme(tmp_path: Path, arguments: list[str], message: str) -> None:
    write_examples(tmp_path)
    given = ["--config-dir=conf", "scheme=columns", "hardware=h200x8", "nproc=2", "out=plan", *arguments]
    command = [sys.executable, "-m", "fullgnn.plan", *given]
    done = run_command(command, cwd=tmp_path, env=environment(tmp_path))
    assert done.status == 1 and message in done.output and done.output.count("\n") == 1


def one_step_in_columns(world: World, cfg: Config, kind: str) -> dict[str, np.ndarray]:
    sys.modules.setdefault("mygnn", ModuleType("mygnn"))
    sys.modules["mygnn.columns"] = example("columns")
    cfg = replace(cfg, scheme={"_target_": "mygnn.columns.Columns", "name": "columns"})
    return step_of(set_up(cfg, world, Meter(world.device), dense_graph(kind).graph() if world.rank == 0 else None))


@pytest.mark.sample(4)
@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("normalization", ["sym", "row", "none"])
def test_the_scheme_is_exact(ranks, world_size: int, normalization: str) -> None:
    cfg = config("scheme=1d", "runtime.dtype=float64", "model.dropout=0.4", f"normalization={normalization}")
    for kind in KINDS:
        assert_one_step_is_exact(ranks(world_size), cfg, kind, one_step_in_columns)


def test_the_scheme_is_short() -> None:
    assert len(source("columns").splitlines()) < 80


def step_of_simplified(world: World, cfg: Config, kind: str) -> dict[str, Any]:
    """Loss gradients and logits of the example model; its dropout is 0."""
    meter = Meter(world.device)
    scheme = make_scheme(cfg, world, meter)
    model = example("simplified").Simplified(5, NUM_CLASSES, num_hops=3, dropout=0.0, seed=4).double()
    request = block_request(model, cfg.optimizations)
    graph = sharded(world, cfg, scheme, request, dense_graph(kind).graph())
    object.__setattr__(graph, "features", to_aligned(graph.features, world.device))
    gradients = FlatGradients(model)
    multi_class(graph).loss(loss_logits(model, graph), graph.train_labels).backward()
    scheme.sum_over_rows(gradients.flat)
    logits = scheme.gather(all_logits(model, graph))
    return {
        "logits": None if logits is None else logits.numpy(),
        "gradients": [model.linear.weight.grad.numpy(), model.linear.bias.grad.numpy()],
        "parameters": [model.linear.weight.detach().numpy(), model.linear.bias.detach().numpy()],
    }


@pytest.mark.parametrize(("world_size", "replication"), [(2, 1), (4, 2)])
def test_the_model_is_exact(ranks, world_size: int, replication: int) -> None:
    cfg = config(*layout_overrides(replication), "runtime.dtype=float64")
    for kind in KINDS:
        of_ranks, dense = ranks(world_size)(step_of_simplified, cfg, kind), dense_graph(kind)
        weight, bias = (torch.from_numpy(tensor).requires_grad_() for tensor in of_ranks[0]["parameters"])
        power = torch.from_numpy(np.linalg.matrix_power(normalize(dense.adj, "sym"), 3))
        logits = power @ (torch.from_numpy(dense.features) @ weight + bias)
        train = torch.from_numpy(dense.train_mask)
        torch.nn.functional.cross_entropy(logits[train], torch.from_numpy(dense.labels)[train]).backward()
        np.testing.assert_allclose(of_ranks[0]["logits"], logits.detach().numpy(), rtol=0, atol=1e-11)
        for rank in of_ranks:
            for gradient, expected in zip(rank["gradients"], (weight.grad, bias.grad), strict=True):
                np.testing.assert_allclose(gradient, expected.numpy(), rtol=0, atol=1e-11)


class Twice(torch.nn.Module):
    """Two layers of an example."""

    def __init__(self, conv: type):
        super().__init__()
        generator = torch.Generator().manual_seed(2)
        self.first, self.second = conv(5, 8, generator), conv(8, NUM_CLASSES, generator)

    def contract(self) -> Contract:
        return Contract(num_blocks=2, restricts_output=True)

    def forward(self, x: torch.Tensor, blocks: list[Block]) -> torch.Tensor:
        return self.second(self.first(x, blocks[0]), blocks[1])


LAYERS = {"edge_conv": "EdgeConv", "gatv2": "GATv2Conv"}


def make(name: str) -> torch.nn.Module:
    module = example(name)
    return (module.Net(5, NUM_CLASSES) if name == "net" else Twice(getattr(module, LAYERS[name]))).double()


def step_of_example(world: World, cfg: Config, kind: str, name: str) -> dict[str, np.ndarray]:
    scheme, model = make_scheme(cfg, world, Meter(world.device)), make(name)
    request = block_request(model, cfg.optimizations)
    return step(model, sharded(world, cfg, scheme, request, dense_graph(kind).graph()), scheme)


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", ["net", *LAYERS])
def test_the_short_examples_are_exact(ranks, name: str) -> None:
    cfg = config("scheme=1d", "runtime.dtype=float64", "model=sage")  # the same matrices are prepared
    for kind in KINDS:
        model, graph = in_one_process(cfg, kind, lambda: make(name))
        compare(ranks(2)(step_of_example, cfg, kind, name), step(model, graph, OneProcess()), 1e-10, kind)


def step_of_hinge(world: World, cfg: Config) -> dict[str, Any]:
    job = set_up(cfg, world, Meter(world.device), dense_graph("symmetric").graph() if world.rank == 0 else None)
    task = example("hinge").Hinge(dense_graph("symmetric").graph().label_facts(), margin=0.5)
    loss = part_of_loss(task, loss_logits(job.model, job.graph), job.graph.train_labels)
    logits = job.scheme.gather(predict(job))
    return {"loss": job.scheme.sum_over_rows(loss.detach()).item(), "logits": logits}


def test_the_task_is_exact(ranks) -> None:
    cfg, dense = config("scheme=1d", "runtime.dtype=float64", "model.dropout=0"), dense_graph("symmetric")
    of_ranks = ranks(3)(step_of_hinge, cfg)
    train = torch.from_numpy(dense.train_mask)
    logits, labels = of_ranks[0]["logits"][train], torch.from_numpy(dense.labels)[train]
    expected = torch.nn.functional.multi_margin_loss(logits, labels, margin=0.5)
    assert all(rank["loss"] == pytest.approx(expected.item(), abs=1e-12) for rank in of_ranks)


def test_the_short_examples_are_short() -> None:
    net, edge_conv = ([line for line in source(name).splitlines() if line] for name in ("net", "edge_conv"))
    assert len(net) <= 15 and len(edge_conv) <= 10


def test_the_front_page_shows_the_same_message() -> None:
    assert source("edge_conv") in (PAGE.parents[1] / "README.md").read_text()
