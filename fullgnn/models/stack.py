"""The base of all models, with checks of their keys; and the base of layered ones, a stack of layers and dropouts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from fullgnn.errors import ConfigError
from fullgnn.graph import Propagation
from fullgnn.nn import Contract, Dropout, Layer, Linear, NodeEmbedding, contract_of, make_norm
from fullgnn.schemes.block import Block
from fullgnn.schemes.inputs import Input

MakeConv = Callable[[int, int, torch.Generator], torch.nn.Module]
"""Builds a convolution: (in_channels, out_channels, generator) -> module."""

JOINS = ("cat", "max", "sum")

NORM_OF_ALL_ROWS = "model.norm=batch reads every row of the last layer; set model.norm=layer or null"
"""A reason in ``Contract.disables``."""


class Model(torch.nn.Module):
    """A model whose input is the features of the nodes, a trainable vector for each node, or both side by side.

    Args:
        in_channels: number of features of a node.
        embedding_channels: width of the trainable vectors; None: there are none.
        seed: seed of the vectors' first values.

    Raises:
        ConfigError: there are neither features nor trainable vectors, or the width is out of range.
    """

    def __init__(self, in_channels: int, embedding_channels: int | None, seed: int):
        super().__init__()
        self.embedding = None
        if embedding_channels is not None:
            check_sizes(embedding_channels=embedding_channels)
            self.embedding = NodeEmbedding(embedding_channels, seed)
        self.in_channels = in_channels + (embedding_channels or 0)
        if not self.in_channels:
            raise ConfigError(
                "the graph has no features: give model.embedding_channels=64, the width of a trainable vector for"
                " each node, or a dataset with features"
            )

    def why_input_varies(self, dropout: float = 0.0) -> str:
        """Why the first layer reads more than products of A with constant features, and what to set; empty: it does
        not.

        Args:
            dropout: the rate of the features.
        """
        if self.embedding is not None:
            return "the model trains a vector for each node; leave out model.embedding_channels"
        if dropout:
            return "dropout changes the features in every epoch; set model.input_dropout=0"
        return ""

    def with_embedding(self, x: Input, block: Block) -> Input:
        """The (num_sources, ``self.in_channels``) input of the first layer, from the (num_sources, in_channels)
        features."""
        if self.embedding is None:
            return x
        assert isinstance(x, Tensor)
        rows = self.embedding(block)
        return torch.cat([x, rows], dim=1) if x.shape[1] else rows


MAX_WIDTH, MAX_DEPTH = 1 << 20, 10_000
"""Columns of a layer, and layers or whatever else a model counts, that no model has."""


def check_sizes(**keys: int) -> None:
    """Refuse a width or a depth below 1, or beyond reason.

    Raises:
        ConfigError: one line that names the key of the model.
    """
    for key, value in keys.items():
        if value < 1:
            raise ConfigError(f"model.{key}={value} is too small: it must be at least 1")
        most = MAX_WIDTH if key.endswith("_channels") else MAX_DEPTH
        if value > most:
            raise ConfigError(f"model.{key}={value} is too large: it must be at most {most}")


def check_rates(**keys: float | None) -> None:
    """Refuse a dropout rate that is not in [0, 1); None is no rate.

    Raises:
        ConfigError: one line that names the key of the model.
    """
    for key, rate in keys.items():
        if rate is not None and not 0 <= rate < 1:
            raise ConfigError(f"model.{key}={rate} is not a dropout rate: it must lie in [0, 1)")


@dataclass(frozen=True)
class StackOptions:
    """The keys that every layered model takes: those of ``conf/model/base.yaml``.

    Raises:
        ConfigError: a value is out of range.
    """

    hidden_channels: int = 16
    """Width of the hidden layers."""
    num_layers: int = 2
    dropout: float = 0.5
    """Dropout probability for the input of every layer."""
    input_dropout: float | None = None
    """Dropout probability for the input of the first layer; None: the same as ``dropout``."""
    norm: str | None = None
    """Norm before the activation of every layer that has one: ``batch``, over all nodes of the graph; ``layer``, over
    the columns of a node; None: no norm."""
    residual: bool = False
    """Whether the input of a layer is added to the result of its convolution, mapped by a matrix if the widths
    differ."""
    jumping_knowledge: str | None = None
    """How a last dense layer reads the results of all layers (Xu et al., 2018): ``cat``, side by side; ``max`` or
    ``sum``, elementwise; None: the last layer's convolution gives the output."""
    bias: bool = True
    """Whether convolutions and dense layers have a bias."""
    embedding_channels: int | None = None
    """Width of a trainable vector for each node, beside its features, or in their place where the graph has none."""
    seed: int = 0
    """Seed of the initial weights and of the dropout masks."""

    def __post_init__(self) -> None:
        check_sizes(hidden_channels=self.hidden_channels, num_layers=self.num_layers)
        check_rates(dropout=self.dropout, input_dropout=self.input_dropout)
        if self.norm is not None:
            make_norm(self.norm, 1)
        if self.jumping_knowledge not in (None, *JOINS):
            raise ConfigError(
                f"model.jumping_knowledge={self.jumping_knowledge} is not known: choose one of null, {', '.join(JOINS)}"
            )


class Stack(Model):
    """Dropout of the input, then ``num_layers`` layers, each of which reads a block of its own.

    A layer is dropout(activation(norm(conv(h) + skip(h)))) with the parts that the options ask for. The last layer is
    its convolution and its skip connection alone; with jumping knowledge it is like all others, and a dense layer maps
    the joined results of all layers to the output.

    Args:
        conv: builds a convolution.
        in_channels: number of features of a node.
        out_channels: number of columns of the output.
        options: see ``StackOptions``.
        activation: builds the activation between two layers.
        last: builds the last convolution, without jumping knowledge; None: ``conv`` does.
        propagation: the matrix whose products with the input are all that the first convolution reads; None: it reads
            more. The powers in these products are those of the class, and 0 where a skip connection adds the input.

    Raises:
        ConfigError: the graph has no features and the options no trainable vectors.
    """

    input_powers: tuple[int, ...] = (1,)

    def __init__(
        self,
        conv: MakeConv,
        in_channels: int,
        out_channels: int,
        options: StackOptions,
        activation: Callable[[], torch.nn.Module] = torch.nn.ReLU,
        last: MakeConv | None = None,
        propagation: Propagation | None = None,
    ):
        super().__init__(in_channels, options.embedding_channels, options.seed)
        depth, hidden, joins = options.num_layers, options.hidden_channels, options.jumping_knowledge is not None
        widths = [self.in_channels, *[hidden] * (depth - 1), hidden if joins else out_channels]
        generator = torch.Generator().manual_seed(options.seed)
        makers = [*[conv] * (depth - 1), conv if joins else last or conv]
        convs = [make(a, b, generator) for make, a, b in zip(makers, widths, widths[1:])]
        rates = [options.dropout if options.input_dropout is None else options.input_dropout]
        rates += [options.dropout] * (depth if joins else depth - 1)
        self.dropout, *others = (Dropout(rate, index, options.seed) for index, rate in enumerate(rates))
        self.layers = torch.nn.ModuleList()
        for index, (made, a, b) in enumerate(zip(convs, widths, widths[1:])):
            skip = _skip(a, b, generator) if options.residual else None
            if index < len(others):
                norm = None if options.norm is None else make_norm(options.norm, b)
                self.layers.append(Layer(made, activation(), others[index], norm, skip))
            else:
                self.layers.append(Layer(made, skip=skip))
        self.jumping_knowledge, self.joined = options.jumping_knowledge, None
        if joins:
            width = hidden * depth if options.jumping_knowledge == "cat" else hidden
            self.joined = Linear(width, out_channels, generator, options.bias)
        self._options, self._first_propagation = options, propagation

    def contract(self) -> Contract:
        """See ``Contract``.

        The features may be ``InputRows`` if nothing but a convolution that takes them reads them, and ``SparseRows`` if
        the convolution takes these, and a skip connection multiplies by a matrix. With jumping knowledge, a norm over
        all nodes needs all rows of the last layer.
        """
        options, constant = self._options, self._first_propagation
        first, disables, restricts = cast(Layer, self.layers[0]), dict[str, str](), True
        of_conv = contract_of(first.conv)
        if constant is not None:
            disables["cache_aggregation"] = varies = self.why_input_varies(self.dropout.p)
            constant = None if varies else constant
        if self.joined is not None:
            disables["loss_rows_only"], restricts = NORM_OF_ALL_ROWS, options.norm != "batch"
        multiplies = of_conv.reads_sparse_rows and not isinstance(first.skip, torch.nn.Identity)
        return Contract(
            num_blocks=len(self.layers),
            input_propagation=constant,
            input_powers=tuple(sorted({0, *self.input_powers})) if options.residual else self.input_powers,
            restricts_output=restricts,
            reads_sparse_rows=multiplies and self.embedding is None,
            reads_input_rows=constant is not None and of_conv.reads_input_rows,
            disables=disables,
        )

    def forward(self, x: Input, blocks: list[Block]) -> Tensor:
        """Map (num_sources, in_channels) to the (num_own_targets, out_channels) logits of the last block's targets."""
        h = self.dropout(self.with_embedding(x, blocks[0]), blocks[0].source_id)
        results: list[Tensor] = []  # of all layers so far, at the targets of the last one
        for layer, block in zip(self.layers, blocks):
            h = layer(h, block)
            if self.joined is not None:
                results = [*map(block.at_targets, results), h]
        return h if self.joined is None else self.joined(_join(results, self.jumping_knowledge))


def _skip(in_channels: int, out_channels: int, generator: torch.Generator) -> torch.nn.Module:
    if in_channels == out_channels:
        return torch.nn.Identity()
    return Linear(in_channels, out_channels, generator, bias=False)


def _join(results: list[Tensor], how: str | None) -> Tensor:
    """Join the layers' (n, hidden) results."""
    if how == "cat":
        return torch.cat(results, dim=1)
    stacked = torch.stack(results)
    return stacked.sum(0) if how == "sum" else stacked.max(0).values
