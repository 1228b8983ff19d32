"""Use a trained model: read it from a checkpoint, give every rank its parameters, and look at one of its layers.

Only rank 0 reads the files. Replicated parameters are sent to all ranks; the rows of sharded parameters travel part by
part, as when a run is resumed (``checkpoints.py``).
"""

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import UninitializedParameter

from fullgnn.codecs import State
from fullgnn.config import build
from fullgnn.config.trust import plain_config
from fullgnn.distributed import all_gather_objects
from fullgnn.engine.checkpoints import CODEC, check_graph, fitting, load_rows
from fullgnn.engine.passes import predict
from fullgnn.engine.run import Run
from fullgnn.engine.saved import check_model, parameters_of
from fullgnn.engine.state import sharded_names
from fullgnn.errors import ConfigError, DataError
from fullgnn.graph.labels import LabelFacts
from fullgnn.models.stack import Stack
from fullgnn.partition.facts import Fingerprint, NodeFacts
from fullgnn.storage.checkpoint import BEST, STATE, find, read
from fullgnn.storage.text import of_fields

log = logging.getLogger(__name__)

WEIGHTS = {"best": BEST, "last": STATE}
"""Choices of ``weights``, and the name of the part of a checkpoint that holds them."""


@dataclass(frozen=True)
class Trained:
    """A trained model, as a checkpoint holds it, and what the model was trained on."""

    checkpoint: Path
    part: str  # BEST or STATE
    epoch: int  # of the parameters
    run_config: Mapping[str, Any]  # all keys of the run's configuration
    graph: Mapping[str, Any]  # the fields of the graph's ``Fingerprint``
    labels: LabelFacts  # of that graph
    parameters: Mapping[str, Tensor]  # the replicated ones, on the host
    codec_state: State | None = None  # what the codec of the features has learnt; None: nothing


def read_trained(path: str, weights: str) -> Trained:
    """Read the checkpoint that ``path`` names, a checkpoint or a run folder.

    Args:
        weights: a key of ``WEIGHTS``.

    Raises:
        ConfigError, DataError: there is no such checkpoint, or it has no such parameters.
    """
    checkpoint, part = find(path), WEIGHTS[weights]
    content = read(checkpoint, STATE)
    if "config" not in content:
        raise DataError(f"{checkpoint} does not hold the configuration of its run: write it again with this version")
    with fitting(checkpoint, STATE):
        run_config = plain_config(content["config"])
        graph = asdict(of_fields(Fingerprint, content.get("graph")))
        labels = of_fields(LabelFacts, content.get("labels"))
        labels.check()
        codec_state = _codec_state(content.get(CODEC))
    if part == BEST:
        if not (checkpoint / f"{BEST}.pt").is_file():
            raise ConfigError(f"{checkpoint} has no best epoch, since none was evaluated before it: give weights=last")
        content = read(checkpoint, BEST)
    with fitting(checkpoint, part):
        epoch, parameters = parameters_of(content.get(part))
    return Trained(checkpoint, part, epoch, run_config, graph, labels, parameters, codec_state)


def _codec_state(saved: Any) -> State | None:
    """The arrays of a codec's state.

    Raises:
        DataError: ``saved`` is no tensors by name.
    """
    if saved is None:
        return None
    if not isinstance(saved, dict) or not all(
        isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in saved.items()
    ):
        raise DataError("the state of its codec is no tensors by name")
    return {name: tensor.numpy() for name, tensor in saved.items()}


def check_fits(trained: Trained, facts: NodeFacts, model: torch.nn.Module) -> None:
    """Refuse a graph whose nodes are not what the model was trained for.

    Raises:
        ConfigError: another number of features, or another graph where each node has parameters of its own.
    """
    num_features = trained.graph["num_features"]
    if facts.num_features != num_features:
        raise ConfigError(
            f"the dataset has {facts.num_features} features a node, and the model was trained on {num_features}:"
            " choose a dataset with as many"
        )
    if sharded_names(model):
        check_graph(trained.graph, facts.fingerprint, "checkpoint")


def has_metrics(trained: Trained, facts: NodeFacts) -> bool:
    """Whether the metrics of the task can be measured: the graph needs a split, and labels like those of the training,
    or held-out links.

    A reason against it is logged.
    """
    if facts.links is not None:
        has_links = facts.links.num_val + facts.links.num_test > 0
        if not has_links:
            log.info("the graph has no held-out links, so there are no metrics")
        return has_links
    labels, before = facts.labels, trained.labels
    same_kind = (
        labels.columns == before.columns and labels.integral >= before.integral and labels.binary >= before.binary
    )
    if not facts.has_labels:
        log.info("the graph has no labelled nodes in a split, so there are no metrics")
    elif not same_kind or (before.class_counts and labels.num_classes > before.num_classes):
        log.info("the labels of the graph are of another kind than those of the training, so there are no metrics")
    else:
        return True
    return False


def load_parameters(trained: Trained, run: Run) -> None:
    """Give the model of ``run`` the trained parameters. Every rank calls it.

    Raises:
        ConfigError, DataError: they do not fit the model, or cannot be read; the same on every rank.
    """
    sharded = sharded_names(run.model)
    with fitting(trained.checkpoint, trained.part):
        check_parameters(trained, run.model)
    run.model.load_state_dict(dict(trained.parameters), strict=False)
    named = dict(run.model.named_parameters())
    rows = {f"model/{name}": named[name].detach() for name in sharded}
    if rows:
        checkpoint = trained.checkpoint if run.world.rank == 0 else None
        load_rows(checkpoint, trained.part, run.graph.block.source_id, rows)


def check_size(trained: Trained, node: Mapping[str, Any]) -> None:
    """Refuse a configuration of a model with more numbers than the checkpoint holds, before memory is taken for them.

    Args:
        node: of the model.

    Raises:
        DataError: one line that names both numbers, and no file.
    """
    try:
        with torch.device("meta"):
            model = build(node, in_channels=1, out_channels=1, seed=0)
        values = model.state_dict().values()
        num_needed = sum(value.numel() for value in values if not isinstance(value, UninitializedParameter))
    except Exception:  # a user's model may need memory for its numbers; another error of a key comes up again
        return
    num_held = sum(value.numel() for value in trained.parameters.values())
    if num_needed > num_held:
        raise DataError(f"its configuration needs {num_needed} numbers for the model, and it holds {num_held}")


def check_parameters(trained: Trained, model: torch.nn.Module) -> None:
    """Refuse parameters that are not those of the ``model``, also if it is on the device "meta".

    Raises:
        DataError: one line that names the difference, and no file.
    """
    sharded = sharded_names(model)
    check_model(trained.parameters, {name: value for name, value in model.state_dict().items() if name not in sharded})


def layer_name(model: torch.nn.Module, layer: str) -> str:
    """The name of ``layer`` in ``model.named_modules()``. For a ``Stack`` it may be the number of one of its layers.

    Raises:
        ConfigError: there is no such part; the message lists all names.
    """
    names = [name for name, _ in model.named_modules() if name]
    name = f"layers.{layer}" if isinstance(model, Stack) and layer.isdecimal() else layer
    if name not in names:
        raise ConfigError(f"layer={layer} is not a part of the model: choose one of {', '.join(names)}")
    return name


@torch.no_grad()
def layer_output(run: Run, layer: str) -> Tensor:
    """The (num_local_nodes, ...) result of a part of the model when it predicts. Every rank calls it.

    Args:
        layer: as in ``named_modules()``. Of a part that is called several times, the last result counts.

    Raises:
        ConfigError: the part is not called, or its result does not have a row for each node; the same on every rank.
    """
    outputs: list[Any] = []
    module = run.model.get_submodule(layer)
    hook = module.register_forward_hook(lambda _module, _inputs, output: outputs.__setitem__(slice(None), [output]))
    predict(run)
    hook.remove()
    problem, num_rows = "", len(run.graph.labels)
    if not outputs:
        problem = "is not called by itself when the model predicts: choose the layer that contains it"
    elif not (isinstance(outputs[0], Tensor) and outputs[0].ndim and len(outputs[0]) == num_rows):
        problem = "does not compute one row for each node: choose another layer"
    if problems := [text for text in all_gather_objects(problem) if text]:
        raise ConfigError(f"layer={layer} {problems[0]}")
    return outputs[0]
