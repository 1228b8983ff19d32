"""What the tests of exactness run on each rank."""

from typing import Any

import numpy as np
import torch

from fullgnn.config import Config
from fullgnn.dist import World
from fullgnn.engine import Job, fit, make_scheme, predict, set_up
from fullgnn.engine.fit import FlatGradients, loss_logits, node_loss
from fullgnn.graph import Graph
from fullgnn.meter import Meter
from fullgnn.nn import set_epoch
from fullgnn.schemes import Scheme
from tests.cases import dense_graph
from tests.oracle import DenseGCN, normalize


def prepare(world: World, cfg: Config, kind: str) -> tuple[Meter, Scheme, Job]:
    meter = Meter(world.device)
    scheme = make_scheme(cfg, world, meter)
    return meter, scheme, set_up(cfg, world, scheme, dense_graph(kind).graph() if world.rank == 0 else None)


def oracle(cfg: Config, kind: str, model: torch.nn.Module) -> DenseGCN:
    """A dense copy of ``model`` on the same graph."""
    dense = dense_graph(kind)
    return DenseGCN(
        normalize(dense.adj, cfg.normalization),
        dense.features,
        dense.labels,
        dense.train_mask,
        [conv.linear.weight.detach().cpu().numpy().copy() for conv in model.convs],
        [conv.bias.detach().cpu().numpy().copy() for conv in model.convs],
        cfg.model["dropout"],
        cfg.seed,
        cfg.model["input_dropout"],
    )


def one_step(world: World, cfg: Config, kind: str) -> dict[str, float]:
    """Largest elementwise differences from the oracle: logits with and without dropout, loss, every gradient."""
    _, scheme, job = prepare(world, cfg, kind)
    model, graph, dense = job.model, job.graph, oracle(cfg, kind, job.model)
    gradients = FlatGradients(model)
    set_epoch(model, 5)
    loss = node_loss(loss_logits(model, graph), graph)
    loss.backward()
    scheme.sum_over_rows(gradients.flat)
    total = scheme.sum_over_rows(loss.detach().clone()).item()

    expected_loss, grad_w, grad_b = dense.loss_and_gradients(5)
    difference = {"loss": abs(total - expected_loss)}
    for name, logits, epoch in (
        ("logits", model(graph.features, graph.adj), 5),
        ("evaluation", predict(model, graph), None),
    ):
        gathered = scheme.gather(logits)
        if gathered is not None:
            difference[name] = np.abs(gathered.numpy() - dense.forward(epoch)[0]).max()
    for layer, conv in enumerate(model.convs):
        difference[f"W{layer}"] = np.abs(conv.linear.weight.grad.cpu().numpy() - grad_w[layer]).max()
        difference[f"b{layer}"] = np.abs(conv.bias.grad.cpu().numpy() - grad_b[layer]).max()
    return difference


def trained(world: World, cfg: Config, kind: str) -> tuple[list[float], list[np.ndarray], float]:
    """Losses and parameters after training, and their largest difference from the oracle's."""
    meter, scheme, job = prepare(world, cfg, kind)
    dense = oracle(cfg, kind, job.model)
    result = fit(job.model, job.graph, scheme, cfg.train, meter)
    expected = dense.train(cfg.train.epochs, cfg.train.optimizer, cfg.train.lr, cfg.train.weight_decay)
    losses = [record.loss for record in result.epochs]
    parameters = [p.detach().cpu().numpy() for conv in job.model.convs for p in (conv.linear.weight, conv.bias)]
    dense_parameters = [array for pair in zip(dense.weights, dense.biases) for array in pair]
    difference = max(
        np.abs(a - b).max() for a, b in zip([np.array(losses), *parameters], [np.array(expected), *dense_parameters])
    )
    return losses, parameters, difference


def final_losses(world: World, cfgs: list[Config], graph: Graph) -> list[float]:
    """Loss before the last update, for each configuration."""
    losses = []
    for cfg in cfgs:
        meter = Meter(world.device)
        scheme = make_scheme(cfg, world, meter)
        job = set_up(cfg, world, scheme, graph)
        losses.append(fit(job.model, job.graph, scheme, cfg.train, meter).epochs[-1].loss)
    return losses


def assert_equal_on_all_ranks(outcomes: list[Any]) -> None:
    """Parameters of ``trained`` are the same to the bit."""
    _, reference, _ = outcomes[0]
    for _, parameters, _ in outcomes:
        assert all(np.array_equal(a, b) for a, b in zip(parameters, reference))
