"""Replayed launches of a training step train as its Python does, for every model and every optimizer.

The steps run the kernels for GPUs in Triton's interpreter. A ``LaunchRecorder`` takes the place of the CUDA graph, so a
number, a branch or a tensor that Python changes between epochs gives other losses or parameters, or an error. They
run on a ``FakeCuda``, where code that asks for the type of the device takes the way of a GPU.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from fullgnn.config import Config
from fullgnn.distributed import World, world_of_one
from fullgnn.engine.cuda_graph import REPLAYED
from fullgnn.engine.optimizers import DeviceRates
from fullgnn.engine.step_runner import StepRunner
from fullgnn.kernels.dropout.philox import Mask
from fullgnn.kernels.support.rehearsal import rehearsing
from tests.commands import ROOT
from tests.gpu_code.recorded_training import NUM_EAGER, Trained, gpu_case, on_fake_gpu, train_recorded
from tests.triton_device import needs_triton

pytestmark = [needs_triton, pytest.mark.skipif(torch.cuda.is_available(), reason="Triton compiles the kernels here")]
ONLY_ALL = pytest.mark.sample(0)

OWN = {"gcnii": ["model.num_layers=3"], "appnp": ["model.num_hops=3"], "lightgcn": ["task=link_prediction"]}
OWN |= {model: ["model.heads=2"] for model in ("gat", "gatv2")}
"""Deep models are shortened, and those with many heads have two, since the interpreter takes its time; LightGCN finds
links."""
MODELS = sorted({file.stem for file in (ROOT / "conf" / "model").glob("*.yaml")} - {"base"})
OPTIMIZERS = {
    "adam": ["optimizer=adam", "train.clip_norm=0.1"],
    "adamw": ["optimizer=adamw", "schedule=exponential", "train.decay_biases=false"],
    "sgd": ["optimizer=sgd", "optimizer.momentum=0.9", "schedule=step", "schedule.step_size=1"],
}


def trained_twice(
    world: World, cfg: Config, plant: Callable[[StepRunner], object] = lambda runner: None
) -> tuple[Trained, Trained]:
    """The training on a fake GPU, in Python and with replayed epochs."""
    trainings = []
    for replayed in (False, True):
        with on_fake_gpu(world) as (on_gpu, _):
            trainings.append(train_recorded(on_gpu, cfg, replayed, plant))
    return trainings[0], trainings[1]


def trained_alone(cfg: Config, *plant: Callable[[StepRunner], object]) -> tuple[Trained, Trained]:
    with world_of_one(torch.device("cpu")) as world:
        return trained_twice(world, cfg, *plant)


def assert_trained_as(python: Trained, recorded: Trained) -> None:
    """Assert that epochs were replayed, with the losses and parameters of Python, to the bit."""
    assert recorded.outcome == REPLAYED
    assert recorded.losses == python.losses and len(set(python.losses)) == len(python.losses)
    assert all(torch.equal(tensor, other) for tensor, other in zip(python.parameters, recorded.parameters, strict=True))


@pytest.mark.parametrize("model", [pytest.param(model, marks=[] if model == "gcn" else ONLY_ALL) for model in MODELS])
def test_every_model_is_replayed(model: str) -> None:
    python, recorded = trained_alone(gpu_case(1, f"model={model}", *OWN.get(model, ())))
    assert_trained_as(python, recorded)
    (graph,) = recorded.graphs
    assert graph.counts()["kernel"] >= 3


@pytest.mark.parametrize(
    "optimizer", [pytest.param(name, marks=[] if name == "sgd" else ONLY_ALL) for name in OPTIMIZERS]
)
def test_every_optimizer_is_replayed(optimizer: str) -> None:
    assert_trained_as(*trained_alone(gpu_case(1, "model=mlp", *OPTIMIZERS[optimizer])))


def test_every_optimizer_has_a_case() -> None:
    assert set(OPTIMIZERS) == {file.stem for file in (ROOT / "conf" / "optimizer").glob("*.yaml")}


@ONLY_ALL
@pytest.mark.parametrize(
    "overrides", [["kernel=tile32"], ["optimizations.offload=always"], ["runtime.dtype=float64"], ["model.norm=batch"]]
)
def test_other_kernels_are_replayed(overrides: list[str]) -> None:
    assert_trained_as(*trained_alone(gpu_case(1, "model=gcn", *overrides)))


def trained_by_ranks(world: World, cfg: Config) -> tuple[Trained, Trained]:
    python, recorded = trained_twice(world, cfg)
    return python, replace(recorded, graphs=[])


@ONLY_ALL
@pytest.mark.parametrize(("world_size", "replication"), [(2, 1), (4, 2)])
@pytest.mark.parametrize("model", ["gcn", "gat", "sage"])
def test_steps_that_exchange_rows_are_replayed(ranks, world_size: int, replication: int, model: str) -> None:
    for python, recorded in ranks(world_size)(trained_by_ranks, gpu_case(replication, f"model={model}")):
        assert_trained_as(python, recorded)


# ---- planted faults --------------------------------------------------------------------------------------------------


def epoch_in_the_seed(monkeypatch: pytest.MonkeyPatch, runner: StepRunner) -> None:
    """The seed of the dropout masks is a number that Python makes of the epoch."""
    monkeypatch.setattr(
        "fullgnn.nn.dropout.Mask",
        lambda node_id, p, seed, epoch, layer: Mask(node_id, p, seed + runner.state.epoch, epoch, layer),
    )


def rate_of_python(monkeypatch: pytest.MonkeyPatch, runner: StepRunner) -> None:
    """The optimizer reads the learning rate on the host, as it does without ``DeviceRates``."""
    runner.state.rates = None


def branch_of_python(monkeypatch: pytest.MonkeyPatch, runner: StepRunner) -> None:
    """Python chooses what the model does, by the number of the epoch."""
    runner.state.model.register_forward_hook(
        lambda module, args, output: output * 2 if runner.state.epoch % 2 else output
    )


def kept_weights(monkeypatch: pytest.MonkeyPatch, runner: StepRunner) -> None:
    """The weights are copied elsewhere before each epoch, and the old ones stay alive."""
    old: list[torch.Tensor] = []
    replace_weights(monkeypatch, old.append)


def freed_weights(monkeypatch: pytest.MonkeyPatch, runner: StepRunner) -> None:
    """The weights are copied elsewhere before each epoch, and the old ones are freed."""
    replace_weights(monkeypatch, lambda old: None)


def replace_weights(monkeypatch: pytest.MonkeyPatch, keep: Callable[[torch.Tensor], object]) -> None:
    begin = StepRunner.begin

    def begin_elsewhere(runner: StepRunner, epoch: int) -> None:
        begin(runner, epoch)
        for parameter in runner.state.model.parameters():
            keep(parameter.data)
            parameter.data = parameter.data.clone()

    monkeypatch.setattr(StepRunner, "begin", begin_elsewhere)


@pytest.mark.parametrize(
    "plant",
    [epoch_in_the_seed]
    + [pytest.param(plant, marks=ONLY_ALL) for plant in (rate_of_python, branch_of_python, kept_weights)],
)
def test_what_a_replay_repeats_gives_other_numbers(monkeypatch: pytest.MonkeyPatch, plant) -> None:
    python, recorded = trained_alone(gpu_case(1, "model=mlp"), lambda runner: plant(monkeypatch, runner))
    assert recorded.outcome == REPLAYED and recorded.losses[: NUM_EAGER + 1] == python.losses[: NUM_EAGER + 1]
    with pytest.raises(AssertionError):
        assert_trained_as(python, recorded)


def test_memory_that_a_replay_misses_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake GPU keeps all memory, so this is a training on the CPU."""
    cfg = gpu_case(1, "model=mlp")
    with (
        world_of_one(torch.device("cpu")) as world,
        pytest.raises(RuntimeError, match="uses memory that was freed after the capture"),
    ):
        train_recorded(world, cfg, True, lambda runner: freed_weights(monkeypatch, runner))


def item_in_the_step(monkeypatch: pytest.MonkeyPatch, runner: StepRunner) -> None:
    runner.state.model.register_forward_hook(lambda module, args, output: output * (output.sum().item() > -1e9))


def numbers_in_the_step(monkeypatch: pytest.MonkeyPatch, runner: StepRunner) -> None:
    runner.state.model.register_forward_hook(lambda module, args, output: output * torch.ones(1).to(output.device))


def rate_of_a_tensor(monkeypatch: pytest.MonkeyPatch, runner: StepRunner) -> None:
    """The optimizer gets the learning rate as a number that is read from the device."""
    step = DeviceRates.step

    def step_by_number(rates: DeviceRates) -> None:
        assert all(float(rate) > 0 for rate in rates.rates)
        step(rates)

    monkeypatch.setattr(DeviceRates, "step", step_by_number)


def mask_in_the_step(monkeypatch: pytest.MonkeyPatch, runner: StepRunner) -> None:
    def without_rows(module, args, output):
        rows = output.abs().sum(1) > 1e9
        assert rehearsing() or len(output[rows]) == 0
        return output

    runner.state.model.register_forward_hook(without_rows)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("plant", "name"),
    [
        (item_in_the_step, "item"),
        (rate_of_a_tensor, "item"),
        (mask_in_the_step, "mask"),
        (numbers_in_the_step, "a copy between them"),
    ],
)
def test_a_step_that_waits_for_the_host_is_not_replayed(monkeypatch: pytest.MonkeyPatch, plant, name: str) -> None:
    python, recorded = trained_alone(gpu_case(1, "model=mlp"), lambda runner: plant(monkeypatch, runner))
    assert recorded.outcome == f"no: rank 0: CaptureError: the host waits for the device: {name}"
    assert recorded.losses == python.losses
