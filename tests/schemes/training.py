"""The functions that the tests of exactness run on each rank, and the results that the oracle expects."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch

from fullgnn.config import Config
from fullgnn.distributed import World
from fullgnn.engine import Run, fit, predict, set_up
from fullgnn.engine.passes import all_logits, loss_logits
from fullgnn.engine.run import build_model
from fullgnn.engine.state import FlatGradients
from fullgnn.engine.step_runner import StepRunner
from fullgnn.graph import Graph
from fullgnn.kernels.dense import dense as products
from fullgnn.kernels.support import aligned, gpu
from fullgnn.nn import set_epoch
from fullgnn.schemes import BlockProduct, Scheme
from fullgnn.telemetry.meter import Meter
from tests.cases import NUM_CLASSES, dense_graph
from tests.oracle import DenseGCN, learning_rate, normalize
from tests.ranks import Ranks

T = TypeVar("T")

STEP = 5  # the epoch of ``one_step``


def prepare(world: World, cfg: Config, kind: str) -> tuple[Meter, Scheme, Run]:
    graph = dense_graph(kind).graph() if world.rank == 0 or world.dry else None
    run = set_up(cfg, world, Meter(world.device), graph)
    return run.meter, run.scheme, run


def only_product(job: Run) -> BlockProduct:
    """The only product of the block of all rows."""
    (product,) = job.graph.block.products.values()
    return product


def convs(model: torch.nn.Module) -> list[Any]:
    """The convolutions of ``model``, a GCN."""
    return [layer.conv for layer in model.layers]


def one_step(world: World, cfg: Config, kind: str) -> dict[str, np.ndarray]:
    """The summed loss and gradients of one step; on rank 0 also the logits, with and without dropout, of all nodes."""
    return step_of(prepare(world, cfg, kind)[2])


def step_of(job: Run) -> dict[str, np.ndarray]:
    """``one_step`` of a job that is set up."""
    model, graph = job.model, job.graph
    set_epoch(model, STEP)
    arrays = {"loss": summed_gradients(job).results[0].cpu().numpy()}
    for name, logits in (("logits", all_logits(model, graph)), ("evaluation", predict(job))):
        gathered = job.scheme.gather(logits)
        if gathered is not None:
            arrays[name] = gathered.numpy()
    for layer, conv in enumerate(convs(model)):
        arrays[f"W{layer}"] = conv.linear.weight.grad.cpu().numpy()
        arrays[f"b{layer}"] = conv.bias.grad.cpu().numpy()
    return arrays


def summed_gradients(job: Run) -> FlatGradients:
    """The loss and all gradients of one step, summed over the ranks."""
    gradients = FlatGradients(job.model)
    loss = job.task.loss(loss_logits(job.model, job.graph), job.graph.train_labels)
    loss.backward()
    gradients.sum_with(loss.detach(), job.scheme)
    return gradients


def one_step_compiled(world: World, cfg: Config, kind: str) -> dict[str, np.ndarray]:
    """``one_step`` with the compiled loop even for small weight gradients."""
    before, products.MIN_WORK = products.MIN_WORK, 1
    try:
        return one_step(world, cfg, kind)
    finally:
        products.MIN_WORK = before


def one_step_in_triton(world: World, cfg: Config, kind: str) -> dict[str, np.ndarray]:
    """``one_step`` with the kernels for a GPU, run by Triton's interpreter if no GPU is visible."""
    before, gpu.INTERPRETED = gpu.INTERPRETED, world.device.type == "cpu" and not torch.cuda.is_available()
    try:
        return one_step(world, cfg, kind)
    finally:
        gpu.INTERPRETED = before


def in_lines(world: World, run: Callable[..., T], *args: Any) -> T:
    """``run(world, *args)`` with rows aligned to memory lines, as on a GPU, on any device."""
    before, aligned.PADDED_DEVICES = aligned.PADDED_DEVICES, ("cpu", "cuda")
    try:
        return run(world, *args)
    finally:
        aligned.PADDED_DEVICES = before


def trained(world: World, cfg: Config, kind: str) -> dict[str, np.ndarray]:
    """Losses and parameters after training."""
    _meter, _scheme, job = prepare(world, cfg, kind)
    result = fit(StepRunner(job))
    arrays = {"losses": np.array([record.loss for record in result.epochs])}
    for layer, conv in enumerate(convs(job.model)):
        arrays[f"W{layer}"] = conv.linear.weight.detach().cpu().numpy()
        arrays[f"b{layer}"] = conv.bias.detach().cpu().numpy()
    return arrays


def oracle(cfg: Config, kind: str) -> DenseGCN:
    """The dense model on the graph ``kind``, with the parameters that every rank starts from."""
    dense = dense_graph(kind)
    model = build_model(cfg, dense.features.shape[1], NUM_CLASSES, torch.device("cpu"))
    return DenseGCN(
        normalize(dense.adj, cfg.normalization),
        dense.features,
        dense.labels,
        dense.train_mask,
        [conv.linear.weight.detach().numpy().copy() for conv in convs(model)],
        [conv.bias.detach().numpy().copy() for conv in convs(model)],
        cfg.model["dropout"],
        cfg.seed,
        cfg.model["input_dropout"],
    )


_expected: dict[str, dict[str, np.ndarray]] = {}
"""Cached results of the oracle, by the part of the configuration that the oracle reads: no layout and no order."""


def expected_step(cfg: Config, kind: str) -> dict[str, np.ndarray]:
    """The expected result of ``one_step`` on rank 0."""
    key = repr((kind, cfg.normalization, cfg.model, cfg.seed, cfg.runtime.dtype))
    if key not in _expected:
        dense = oracle(cfg, kind)
        loss, grad_w, grad_b = dense.loss_and_gradients(STEP)
        logits = {"logits": dense.forward(STEP)[0], "evaluation": dense.forward(None)[0]}
        _expected[key] = {"loss": np.array(loss), **logits, **_by_layer(grad_w, grad_b)}
    return _expected[key]


def expected_training(cfg: Config, kind: str) -> dict[str, np.ndarray]:
    """The expected result of ``trained`` on every rank."""
    epochs, node = cfg.train.epochs, cfg.optimizer
    rates = [learning_rate(epoch, epochs, node["lr"], cfg.schedule) for epoch in range(1, epochs + 1)]
    others = (node.get("momentum", 0.0), cfg.train.clip_norm, cfg.train.decay_biases)
    train = (epochs, node["name"], rates, node["weight_decay"], *others)
    key = repr((kind, cfg.normalization, cfg.model, cfg.seed, cfg.runtime.dtype, train))
    if key not in _expected:
        dense = oracle(cfg, kind)
        losses = dense.train(*train)
        _expected[key] = {"losses": np.array(losses), **_by_layer(dense.weights, dense.biases)}
    return _expected[key]


def _by_layer(weights: list[np.ndarray], biases: list[np.ndarray]) -> dict[str, np.ndarray]:
    named = {f"W{layer}": weight for layer, weight in enumerate(weights)}
    return named | {f"b{layer}": bias for layer, bias in enumerate(biases)}


def difference(arrays: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> float:
    """The largest absolute difference between ``arrays`` and ``expected``."""
    assert all(array.shape == expected[name].shape for name, array in arrays.items())
    return max(np.abs(array - expected[name]).max() for name, array in arrays.items())


def assert_one_step_is_exact(
    ranks: Ranks, cfg: Config, kind: str, step: Callable = one_step, tolerance: float = 1e-11
) -> None:
    """Compare logits, loss and every gradient with the oracle, elementwise."""
    expected, outcomes = expected_step(cfg, kind), ranks(step, cfg, kind)
    assert outcomes[0].keys() == expected.keys()
    for arrays in outcomes:
        assert expected.keys() - arrays.keys() <= {"logits", "evaluation"}
        assert difference(arrays, expected) < tolerance, (kind, cfg)


def assert_training_is_exact(ranks: Ranks, cfg: Config, kind: str) -> None:
    """Compare every loss and parameter with the oracle, elementwise, and assert that all ranks have equal bits."""
    expected, outcomes = expected_training(cfg, kind), ranks(trained, cfg, kind)
    for arrays in outcomes:
        assert arrays.keys() == expected.keys()
        assert difference(arrays, expected) < 1e-9, (kind, cfg)
    assert_equal_on_all_ranks(outcomes)


def final_losses(world: World, cfgs: list[Config], graph: Graph) -> list[float]:
    """The loss before the last update, for each configuration."""
    losses = []
    for cfg in cfgs:
        meter = Meter(world.device)
        job = set_up(cfg, world, meter, graph)
        losses.append(fit(StepRunner(job)).epochs[-1].loss)
    return losses


def assert_equal_on_all_ranks(outcomes: list[dict[str, np.ndarray]]) -> None:
    """Assert that losses and parameters of ``trained`` are bitwise equal."""
    for arrays in outcomes:
        assert all(np.array_equal(array, outcomes[0][name]) for name, array in arrays.items())


def traced_product(
    world: World, cfg: Config, kind: str, steps: dict[tuple[type, str], str], width: int = 4
) -> list[str]:
    """The events of one product on this rank, in order.

    Args:
        steps: (class, name of a method) -> the event that each of its calls is.
        width: number of columns of X, which are ones, and stay it.
    """
    _, _, job = prepare(world, cfg, kind)
    trace: list[str] = []
    originals = {place: getattr(*place) for place in steps}
    for (owner, name), event in steps.items():

        def traced(self, *args, _original=originals[owner, name], _event=event):
            trace.append(_event)
            return _original(self, *args)

        setattr(owner, name, traced)
    try:
        x = torch.ones(len(job.graph.block.source_id), width, dtype=torch.float64)
        only_product(job).multiply(x)
        assert torch.equal(x, torch.ones_like(x))  # sending rows does not change them
    finally:
        for (owner, name), original in originals.items():
            setattr(owner, name, original)
    return trace
