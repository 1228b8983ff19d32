"""N-GCN, a network of graph convolutional networks over powers of A (Abu-El-Haija et al., 2019)."""

import torch
from torch import Tensor

from fullgnn.errors import ConfigError
from fullgnn.graph import Propagation
from fullgnn.models.stack import Model, check_rates, check_sizes
from fullgnn.nn import Contract, Dropout, Linear, PowersConv
from fullgnn.schemes.block import Block
from fullgnn.schemes.inputs import Input

CLASSIFIERS = ("dense", "attention")


class NGCN(Model):
    """``num_copies`` GCNs of two layers for each power of A from 0 to ``num_powers`` - 1, and a classifier over all.

    The GCN of power k has A^k in the place of A, in both layers. The ``dense`` classifier is a dense layer over the
    outputs of all GCNs side by side, N-GCN_fc in the paper; ``attention`` is a weighted mean of their class
    probabilities, with one trained weight for each, N-GCN_a.

    Args:
        hidden_channels: width of the hidden layer of each GCN.
        num_powers: K, at least 2.
        num_copies: r.
        classifier: ``dense`` or ``attention``.
        dropout: dropout probability for the input of every layer.
        input_dropout: dropout probability for the features; None: the same as ``dropout``.
        normalization, self_loops: what A is, see ``Propagation``.
        bias: whether the layers have a bias.
        in_channels, embedding_channels, seed: see ``Model``.

    Raises:
        ConfigError: a width, number or probability is out of range, or the classifier is not known.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        hidden_channels: int = 10,
        num_powers: int = 4,
        num_copies: int = 1,
        classifier: str = "dense",
        dropout: float = 0.5,
        input_dropout: float | None = None,
        normalization: str = "sym",
        self_loops: bool = True,
        bias: bool = True,
        embedding_channels: int | None = None,
        seed: int = 0,
    ):
        super().__init__(in_channels, embedding_channels, seed)
        if num_powers < 2:
            raise ConfigError(f"model.num_powers={num_powers} is too small: it must be at least 2, for A^0 and A^1")
        check_sizes(hidden_channels=hidden_channels, num_copies=num_copies, num_powers=num_powers)
        check_rates(dropout=dropout, input_dropout=input_dropout)
        if classifier not in CLASSIFIERS:
            raise ConfigError(f"model.classifier={classifier} is not known: choose one of {', '.join(CLASSIFIERS)}")
        generator = torch.Generator().manual_seed(seed)
        common = num_powers, num_copies, normalization, self_loops, bias
        self.first = PowersConv(self.in_channels, hidden_channels, generator, True, *common)
        self.second = PowersConv(hidden_channels, out_channels, generator, False, *common)
        num_branches = num_powers * num_copies
        self.classifier = self.attention = None
        if classifier == "dense":
            self.classifier = Linear(num_branches * out_channels, out_channels, generator, bias)
        else:
            self.attention = torch.nn.Parameter(torch.zeros(num_branches))
        rates = dropout if input_dropout is None else input_dropout, dropout
        self.dropout, self.hidden_dropout = (Dropout(rate, index, seed) for index, rate in enumerate(rates))
        self.propagation, self.num_powers = Propagation(normalization, self_loops), num_powers

    def contract(self) -> Contract:
        """See ``Contract``."""
        varies = self.why_input_varies(self.dropout.p)
        return Contract(
            num_blocks=2 * (self.num_powers - 1),
            propagations=(self.propagation,),
            input_propagation=None if varies else self.propagation,
            input_powers=tuple(range(self.num_powers)),
            restricts_output=True,
            reads_sparse_rows=self.embedding is None,
            disables={"cache_aggregation": varies},
        )

    def forward(self, x: Input, blocks: list[Block]) -> Tensor:
        """Map (num_sources, in_channels) to the (num_own_targets, out_channels) logits of the last block's targets."""
        half = len(blocks) // 2
        h = self.dropout(self.with_embedding(x, blocks[0]), blocks[0].source_id)
        h = self.hidden_dropout(torch.relu(self.first(h, blocks[:half])), blocks[half - 1].own_id)
        outputs = self.second(h, blocks[half:])
        if self.classifier is not None:
            return self.classifier(outputs)
        assert self.attention is not None
        of_branches = outputs.unflatten(1, (len(self.attention), -1)).log_softmax(2)
        return (of_branches + self.attention.log_softmax(0)[:, None]).logsumexp(1)
