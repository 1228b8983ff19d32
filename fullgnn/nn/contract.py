"""The contract of a module, which is a model or a layer of one: what it asks for and allows.

A module states this by one method, ``contract()``, which returns a ``Contract``. It is asked when a run is set up, and
never in a forward pass. A module without the method, such as ``torch.nn.ReLU``, asks for nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from fullgnn.config import Config, OptimizationConfig, build
from fullgnn.errors import ConfigError
from fullgnn.graph import EdgeSet, Propagation
from fullgnn.schemes.base import BlockRequest


@dataclass(frozen=True)
class RowReads:
    """How many numbers a kernel over edges reads for each edge, in rows that the edge names."""

    sources: int = 0
    """Numbers of the row of the source."""
    targets: int = 0
    """Numbers of the row of the target."""
    winners: int = 0
    """Ids, of 8 bytes each, in the argmax of the target: the source with the largest value in each column. A CPU kernel
    reads the argmax once for each target, and reads no edge."""


@dataclass(frozen=True)
class EdgeReads:
    """What a layer reads for each edge. The forward pass of the layer fetches the rows of the sources once, and its
    backward pass sends their gradients home once; each pass runs one kernel over the edges of each stage."""

    forward: RowReads
    backward: RowReads


@dataclass(frozen=True)
class Contract:
    """What one module asks for and allows. A model need not repeat what its layers state.

    Raises:
        TypeError: a field of another name.
    """

    # Fields that models and layers state.
    propagations: tuple[Propagation, ...] = ()
    """The matrices that the module passes to ``block.product``."""
    edge_sets: tuple[EdgeSet, ...] = ()
    """The edge sets that the module passes to ``block.stages``, because it reads edges one by one."""
    edge_reads: EdgeReads | None = None
    """What the module reads for each edge, from which the planner computes how long its kernels take; None: the module
    does not state it, and the planner refuses a model that reads edges through the module."""
    joins_rows: bool = False
    """Whether the module calls ``block.sum_over_rows`` or ``block.gather_partial``."""
    sharded: tuple[str, ...] = ()
    """The names of the module's parameters that have a row for each node. A module that has some creates them in
    ``place(node_id)``, see ``PlacesRows``."""
    orders_products: bool = False
    """Whether the module reads its attribute ``spmm_order``, which ``set_spmm_order`` sets."""
    reads_sparse_rows: bool = False
    """Whether the features may be ``SparseRows``: the module reads nothing but their products with its weights."""
    reads_input_rows: bool = False
    """Whether the features may be ``InputRows``, which lie in a larger matrix on the host."""

    # Fields that only a layer states.
    fuses_activation: bool = False
    """Whether ``forward`` takes an ``Activation`` as a third argument, see ``Layer``."""

    # Fields that only a model states.
    num_blocks: int | None = None
    """How many blocks ``forward(x, blocks)`` reads, at least 1; None: the module is no model."""
    num_row_blocks: int = 0
    """How many of these blocks, the first ones, only name the rows: the model reads no neighbours through them."""
    input_propagation: Propagation | None = None
    """The matrix A, if the model uses its input X only as products A^k @ X; None: it reads X otherwise too."""
    input_powers: tuple[int, ...] = (1,)
    """The powers k of these products."""
    restricts_output: bool = False
    """Whether the last block may have fewer targets than sources: nothing after the product with it mixes rows."""
    disables: Mapping[str, str] = field(default_factory=dict)
    """By optimization, ``cache_aggregation`` or ``loss_rows_only``: why the model does not support it, and what to
    set."""
    finds_links: bool = False
    """Whether only a task that finds links can train the model."""


@runtime_checkable
class StatesContract(Protocol):
    """A module that asks for something."""

    def contract(self) -> Contract:
        """What the module asks for. The answer may depend on the arguments of its constructor."""


class PlacesRows(Protocol):
    """A module whose contract names ``sharded`` parameters."""

    def place(self, node_id: Tensor) -> None:
        """Create the sharded parameters for the rows with the original ids ``node_id`` (num_local_nodes,). It is called
        once, when the rows of the rank are known; the first values depend on these ids alone."""


_NOTHING = Contract()


def contract_of(module: torch.nn.Module) -> Contract:
    """What ``module`` asks for; of a module without the method ``contract``, nothing."""
    return module.contract() if isinstance(module, StatesContract) else _NOTHING


def contracts_of(model: torch.nn.Module) -> Iterator[Contract]:
    """What ``model`` and all modules in it ask for, in the order of ``model.modules()``."""
    return map(contract_of, model.modules())


def check_contract(model: torch.nn.Module) -> None:
    """Refuse a model that does not state how many blocks it reads.

    Raises:
        ConfigError: one line that says what to add.
    """
    name, num_blocks = type(model).__name__, contract_of(model).num_blocks
    if not isinstance(num_blocks, int) or num_blocks < 1:
        states = isinstance(model, StatesContract)
        what = f"{name}.contract() states num_blocks={num_blocks}" if states else f"{name} has no method contract()"
        raise ConfigError(
            f"{what}: a model has one that returns fullgnn.nn.Contract(num_blocks=...), with the number of blocks that"
            " its forward(x, blocks) reads, at least 1"
        )


def block_request(model: torch.nn.Module, optimizations: OptimizationConfig) -> BlockRequest:
    """Collect what the modules of ``model`` ask of their blocks, each thing once, in the order of ``model.modules()``.

    Every rank builds its blocks in this order, and some of them by collectives.
    """
    contracts = [*contracts_of(model)]
    return BlockRequest(
        propagations=tuple(
            dict.fromkeys(propagation for contract in contracts for propagation in contract.propagations)
        ),
        loss_rows=bool(optimizations.loss_rows_only),  # an ``auto`` that is not decided yet counts as true
        edges=tuple(dict.fromkeys(edge_set for contract in contracts for edge_set in contract.edge_sets)),
        fold=optimizations.fold_normalization,
        joins_rows=any(contract.joins_rows for contract in contracts),
        num_blocks=contract_of(model).num_blocks or 1,  # a layer, which is no model, reads one
    )


def trial_model(cfg: Config) -> torch.nn.Module:
    """A model of ``cfg`` for one feature and one output, with which nobody trains. It states what the model asks for,
    and refuses wrong keys, before it is known how many features and outputs there are.

    Raises:
        ConfigError: a size or a rate of the model is out of range.
    """
    return build(cfg.model, in_channels=1, out_channels=1, seed=cfg.seed)
