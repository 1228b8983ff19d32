"""The update: optimizers by name, learning rates by formula, clipped gradients, and what a checkpoint must keep."""

import functools
import io
import math
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fullgnn.config import Config
from fullgnn.config.compose import compose, load_config
from fullgnn.distributed import World
from fullgnn.engine import check_optimizer, set_up
from fullgnn.engine.cuda_graph import Replay
from fullgnn.engine.optimizers import (
    DeviceRates,
    clip_gradients,
    is_replayable,
    make_optimizer,
    make_schedule,
    without_compiler,
)
from fullgnn.engine.step_runner import StepRunner
from fullgnn.errors import ConfigError
from fullgnn.telemetry.meter import Meter
from tests.cases import config
from tests.oracle import learning_rate

OPTIMIZERS = {
    "adam": [],
    "adamw": ["optimizer=adamw"],
    "sgd": ["optimizer=sgd", "optimizer.momentum=0.9", "optimizer.nesterov=true"],
}
SCHEDULES = {
    "constant": [],
    "cosine": ["schedule=cosine", "schedule.eta_min=0.002"],
    "short cosine": ["schedule=cosine", "schedule.T_max=4"],
    "step": ["schedule=step", "schedule.step_size=3"],
    "exponential": ["schedule=exponential", "schedule.gamma=0.8"],
    "linear": ["schedule=linear", "schedule.end_factor=0.1"],
    "short linear": ["schedule=linear", "schedule.total_iters=2"],
}


class Training:
    """Ten epochs of a tiny model, by the optimizer and the schedule of a configuration."""

    def __init__(self, cfg: Config):
        self.model = torch.nn.Linear(3, 2)
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.copy_(torch.linspace(-1, 1, parameter.numel()).view_as(parameter))
        self.optimizer = make_optimizer(cfg.optimizer, self.model, cfg.train.decay_biases)
        self.schedule = make_schedule(cfg.schedule, self.optimizer, cfg.train.epochs)
        self.rates: list[float] = []

    def train(self, first: int, last: int) -> None:
        for epoch in range(first, last + 1):
            self.rates.append(self.optimizer.param_groups[0]["lr"])
            self.optimizer.zero_grad()
            self.model(torch.linspace(-epoch, 1, 12).view(4, 3)).square().mean().backward()
            self.optimizer.step()
            if self.schedule is not None:
                self.schedule.step()

    def state(self) -> dict[str, Any]:
        schedule = None if self.schedule is None else self.schedule.state_dict()
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "schedule": schedule}

    def load(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.schedule is not None:
            self.schedule.load_state_dict(state["schedule"])


def test_optimizers_carry_their_settings() -> None:
    model = torch.nn.Linear(2, 2)
    made = {name: make_optimizer(config(*OPTIMIZERS[name], "optimizer.lr=0.5").optimizer, model) for name in OPTIMIZERS}
    classes = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
    for name, optimizer in made.items():
        assert isinstance(optimizer, classes[name]) and optimizer.defaults["lr"] == 0.5
        assert optimizer.defaults["fused"] is (None if name == "sgd" else True)
    assert made["adam"].defaults["weight_decay"] == 5e-4 and made["adamw"].defaults["weight_decay"] == 0.01
    assert made["sgd"].defaults["momentum"] == 0.9 and made["sgd"].defaults["nesterov"]
    assert make_optimizer({**config().optimizer, "fused": False}, model).defaults["fused"] is False


@pytest.mark.sample(5)
@pytest.mark.parametrize("warmup", [0, 1, 4, 10])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_learning_rates_follow_the_formula(schedule: str, warmup: int) -> None:
    cfg = config(*SCHEDULES[schedule], f"schedule.warmup_epochs={warmup}", "train.epochs=10", "optimizer.lr=0.3")
    training = Training(cfg)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        training.train(1, 10)
    if schedule == "short cosine":  # torch's cosine rises again after T_max, as the formula does
        assert max(training.rates) > min(training.rates)
    assert training.rates == pytest.approx(
        [learning_rate(epoch, 10, 0.3, cfg.schedule) for epoch in range(1, 11)], rel=1e-12, abs=1e-12
    )


def test_a_constant_learning_rate_has_no_schedule() -> None:
    assert Training(config()).schedule is None
    assert Training(config("schedule.warmup_epochs=1")).schedule is not None
    assert Training(config("schedule.factor=0.5")).schedule is not None


@pytest.mark.sample(10)
@pytest.mark.parametrize("warmup", [0, 3, 5, 8])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_goes_on_from_a_file_with_the_same_bits(optimizer: str, schedule: str, warmup: int) -> None:
    """The warm-up ends before, at or after the epoch that is saved."""
    overrides = [*OPTIMIZERS[optimizer], *SCHEDULES[schedule], f"schedule.warmup_epochs={warmup}"]
    cfg = config(*overrides, "train.epochs=10", "train.decay_biases=false")
    whole, before, after = Training(cfg), Training(cfg), Training(cfg)
    whole.train(1, 10)
    before.train(1, 5)
    file = io.BytesIO()
    torch.save(before.state(), file)
    file.seek(0)
    after.load(torch.load(file, weights_only=True))
    after.train(6, 10)
    assert before.rates + after.rates == whole.rates
    for name, value in whole.model.state_dict().items():
        assert torch.equal(after.model.state_dict()[name], value), name


@pytest.mark.parametrize("num_gradients", [1, 7, 1024, 1025, 5000, 1024**2 + 3])
def test_gradients_are_clipped_by_their_joint_norm(num_gradients: int) -> None:
    before = torch.randn(num_gradients, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    norm = math.sqrt(math.fsum((before * before).tolist()))
    for limit in (norm / 7, norm * 1.01):
        clipped = before.clone()
        clip_gradients(clipped, limit)
        torch.testing.assert_close(clipped, before * min(1, limit / norm), rtol=1e-13, atol=0)
    assert torch.equal(clipped, before)  # those below the limit keep their bits
    theirs = torch.nn.Parameter(torch.zeros_like(before))
    theirs.grad, ours = before.clone(), before.clone()
    torch.nn.utils.clip_grad_norm_([theirs], norm / 7)
    clip_gradients(ours, norm / 7)
    torch.testing.assert_close(ours, theirs.grad, rtol=2e-6 / norm, atol=0)  # torch adds 1e-6 to the norm
    zero = torch.zeros(3)
    clip_gradients(zero, 1.0)
    assert torch.equal(zero, torch.zeros(3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_clipped_gradients_do_not_depend_on_the_number_of_threads(dtype: torch.dtype) -> None:
    before = torch.randn(1_000_003, dtype=dtype, generator=torch.Generator().manual_seed(0))
    threads, clipped = torch.get_num_threads(), []
    try:
        for number in (1, 2, 3, 4):
            torch.set_num_threads(number)
            clipped.append(before.clone())
            clip_gradients(clipped[-1], 1.0)
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(gradients, clipped[0]) for gradients in clipped)


def test_weight_decay_spares_parameters_with_less_than_two_dimensions() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.LayerNorm(2), torch.nn.Linear(2, 2, bias=False))
    for overrides in OPTIMIZERS.values():
        node = config(*overrides, "optimizer.weight_decay=0.25").optimizer
        (group,) = make_optimizer(node, model, True).param_groups
        assert group["weight_decay"] == 0.25 and len(group["params"]) == 5
        decayed, spared = make_optimizer(node, model, False).param_groups
        assert decayed["weight_decay"] == 0.25 and decayed["params"] == [model[0].weight, model[2].weight]
        assert spared["weight_decay"] == 0 and spared["params"] == [model[0].bias, *model[1].parameters()]
        (only,) = make_optimizer(node, model[2], False).param_groups
        assert only["weight_decay"] == 0.25


def test_the_examples_of_the_page_need_only_their_yaml(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "extending.md").read_text()
    for path in ("optimizer/rmsprop", "schedule/polynomial"):
        match = re.search(rf"`conf/{path}\.yaml`(?:[^\n]|\n(?!\n))*:\n\n```yaml\n(.*?)```", page, re.DOTALL)
        assert match is not None
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).with_suffix(".yaml").write_text(match[1])
    own = [f"hydra.searchpath=[{tmp_path}]", "optimizer=rmsprop", "schedule=polynomial"]
    cfg = load_config(compose(*own, "train.epochs=5"))
    check_optimizer(cfg)
    ours, theirs = Training(cfg), Training(config())
    theirs.optimizer = torch.optim.RMSprop(theirs.model.parameters(), lr=0.01, alpha=0.9, weight_decay=5e-4)
    theirs.schedule = torch.optim.lr_scheduler.PolynomialLR(theirs.optimizer, total_iters=5, power=2)
    for training in (ours, theirs):
        training.train(1, 5)
    assert ours.rates == theirs.rates and ours.rates[-1] < 0.0005
    assert torch.equal(ours.model.weight, theirs.model.weight) and torch.equal(ours.model.bias, theirs.model.bias)
    with pytest.raises(ConfigError, match="^optimizer.lr=abc does not fit: it takes a number"):
        load_config(compose(*own, "optimizer.lr=abc"))
    with pytest.raises(ConfigError, match="^unknown configuration key optimizer.beta"):
        load_config(compose(*own, "+optimizer.beta=1"))


class Plain(torch.optim.Optimizer):
    """An optimizer of a user's own, whose step is wrapped, without weight decay."""

    def __init__(self, params: Any, lr: float):
        super().__init__(params, {"lr": lr})
        self.num_wrapped = 0

    @staticmethod
    def counted(step: Callable) -> Callable:
        @functools.wraps(step)
        def wrapped(self: Any, closure: Any = None) -> Any:
            self.num_wrapped += 1
            return step(self, closure)

        return wrapped

    @counted
    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.add_(parameter.grad, alpha=-group["lr"])


PLAIN = {"_target_": f"{__name__}.Plain", "name": "plain", "lr": 0.5}


def test_the_step_of_an_own_optimizer_stays_as_it_is() -> None:
    optimizer = without_compiler(Plain)([weight := torch.ones(2, requires_grad=True)], 0.5)
    weight.sum().backward()
    optimizer.step()
    assert optimizer.num_wrapped == 1 and weight.tolist() == [0.5, 0.5]


REFUSED = {
    "optimizer=lbfgs cannot be used: LBFGS.step() missing 1 required": {"optimizer": ("torch.optim.LBFGS", "lbfgs")},
    "optimizer=x cannot be used: torch.nn.ParameterList is no torch.optim.Optimizer": {
        "optimizer": ("torch.nn.ParameterList", "x")
    },
    "schedule=plateau cannot be used: ReduceLROnPlateau.step() missing 1 required": {
        "schedule": ("torch.optim.lr_scheduler.ReduceLROnPlateau", "plateau")
    },
    "schedule=x cannot be used: ": {"schedule": ("torch.nn.Module", "x")},
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_step_by_itself_is_refused_before_anything_starts(message: str) -> None:
    cfg = config()
    for group, (target, name) in REFUSED[message].items():
        setattr(cfg, group, {"_target_": target, "name": name})
    with pytest.raises(ConfigError) as caught:
        check_optimizer(cfg)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


def test_an_optimizer_without_weight_decay_decays_biases_or_nothing() -> None:
    cfg = config("train.decay_biases=false")
    cfg.optimizer = dict(PLAIN)
    with pytest.raises(ConfigError, match="^train.decay_biases=false: optimizer=plain has no weight_decay: leave it"):
        check_optimizer(cfg)
    cfg.train.decay_biases = True
    check_optimizer(cfg)


class Nested(torch.nn.Module):
    """Parameters ``first.weight``, ``first.bias``, ``layers.0.weight`` and ``layers.1.weight``, all 2."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(1, 1)
        self.layers = torch.nn.ModuleList([torch.nn.Linear(1, 1, bias=False) for _ in range(2)])
        for parameter in self.parameters():
            torch.nn.init.constant_(parameter, 2.0)


@pytest.mark.parametrize("decay_biases", [True, False])
def test_weights_decay_by_their_names(decay_biases: bool) -> None:
    """A step of SGD with gradients 0 shows the weight decay of each parameter; the longest name counts."""
    model = Nested()
    node = config("optimizer=sgd", "optimizer.lr=1.0", "optimizer.weight_decay=0.125").optimizer
    optimizer = make_optimizer(node, model, decay_biases, {"layers": 0.25, "layers.1": 0, "first.bias": 0.5})
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    decays = {name: 1 - parameter.item() / 2 for name, parameter in model.named_parameters()}
    of_bias = 0.5 if decay_biases else 0.0
    assert decays == {"first.weight": 0.125, "first.bias": of_bias, "layers.0.weight": 0.25, "layers.1.weight": 0.0}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"layer": 0.1}, "train.weight_decay_of: no parameter's name begins with layer: the model has first, layers"),
        ({"layers": -1}, "train.weight_decay_of={'layers': -1} does not fit: give names of parameters and numbers"),
        ({"layers": "x"}, "train.weight_decay_of={'layers': 'x'} does not fit"),
        (0.1, "train.weight_decay_of=0.1 does not fit"),
    ],
)
def test_a_weight_decay_of_nothing_is_one_line(given: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make_optimizer(config().optimizer, Nested(), True, given)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


# ---- learning rates on the device ------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_step_reads_the_learning_rate_that_was_written_to_the_device(optimizer: str) -> None:
    """Between ``write`` and ``step`` the Python number changes, as it does between two replays of a CUDA graph."""
    cfg = config(*OPTIMIZERS[optimizer], "train.decay_biases=false")
    ours, theirs = Training(cfg), Training(cfg)
    rates = DeviceRates(ours.optimizer, torch.device("cpu"))
    for lr in (0.3, 0.01, 0.2):
        for training in (ours, theirs):
            training.model(torch.linspace(-1, 1, 12).view(4, 3)).square().mean().backward()
            for group in training.optimizer.param_groups:
                group["lr"] = lr
        rates.write()
        for group in ours.optimizer.param_groups:
            group["lr"] = 1e9
        rates.step()
        theirs.optimizer.step()
        assert [group["lr"] for group in ours.optimizer.param_groups] == [1e9, 1e9]
        for parameter, other in zip(ours.model.parameters(), theirs.model.parameters(), strict=True):
            torch.testing.assert_close(parameter, other, rtol=1e-6, atol=1e-7)
    states = [training.optimizer.state_dict()["param_groups"] for training in (ours, theirs)]
    assert [{**group, "lr": 0} for group in states[0]] == [{**group, "lr": 0} for group in states[1]]


def test_a_step_that_fails_leaves_no_tensors_in_the_optimizer() -> None:
    training = Training(config())
    rates = DeviceRates(training.optimizer, torch.device("cpu"))
    training.optimizer.step = lambda: 1 / 0  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        rates.step()
    assert training.optimizer.param_groups[0]["lr"] == 0.01


def outcome_with_own_optimizer(world: World, cfg: Config) -> tuple[str, float]:
    meter = Meter(world.device)
    job = set_up(cfg, world, meter)
    step = StepRunner(job, Replay(lambda: pytest.fail("a graph is made")))
    losses: list[Tensor] = [step(epoch).results.read()[0] for epoch in range(1, 9)]
    return step.outcome, losses[-1] - losses[0]


def test_an_optimizer_whose_state_may_be_on_the_host_is_not_replayed(ranks) -> None:
    cfg = config("dataset=karate", "model.dropout=0", "schedule=exponential")
    cfg.optimizer = dict(PLAIN)
    ((outcome, change),) = ranks(1)(outcome_with_own_optimizer, cfg)
    assert outcome == "no: Plain may keep its state on the host" and change < 0
    models = [torch.nn.Linear(1, 1) for _ in range(2)]
    assert not is_replayable(Plain(models[0].parameters(), 0.1))
    assert is_replayable(make_optimizer(config().optimizer, models[1]))
