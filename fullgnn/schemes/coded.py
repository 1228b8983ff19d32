"""Features that a codec keeps travel as codes: what ranks send each other for A @ H0 is as many times smaller.

Where ranks read each other's rows in shared memory, nothing is sent, and decoded rows are read.

A rank decodes the rows that have arrived, some columns at a time, and multiplies them. A scale of the columns of A
travels beside the codes, since a code cannot be scaled. So the product has the same bits as that of the decoded rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from fullgnn.codecs import Codec, load
from fullgnn.codecs.encoded import has_state
from fullgnn.kernels.support.aligned import empty_aligned
from fullgnn.schemes.block import BlockProduct
from fullgnn.schemes.multiplication import DistributedMultiplication

ROWS_AT_ONCE = 16384
"""Rows that are decoded at a time: a codec decodes all columns, of which the product reads a few at a time."""


@dataclass(frozen=True, eq=False)
class CodedFeatures:
    """A rank's features as a codec keeps them."""

    rows: Tensor  # (num_local_nodes, W), on the host
    codec: Codec  # which has learnt
    dtype: torch.dtype  # of decoded features

    def arrive(self, product: BlockProduct) -> "Arrived":
        """Bring the codes that the stages of a product read, a copy of them. Every rank calls it."""
        multiplication = product.multiply
        assert isinstance(multiplication, DistributedMultiplication)
        device, scale = multiplication.context.device, multiplication.input_scale
        if has_state(self.codec):
            load(self.codec, self.codec.state(), device)  # type: ignore[attr-defined]
        columns = [_as_bytes(self.rows.to(device))]
        if scale is not None:
            columns.append(_as_bytes(scale[:, None]))
        steps = multiplication.exchange.steps(torch.cat(columns, dim=1), None)
        return Arrived(self, multiplication, [None if rows is None else rows.clone() for rows in steps])


@dataclass(frozen=True, eq=False)
class Arrived:
    """The codes that the stages of this rank read."""

    coded: CodedFeatures
    multiplication: DistributedMultiplication
    stages: list[Tensor | None]  # (rows of the stage, bytes of a code and of a scale) uint8; None: no stage

    def multiply(self, chosen: slice) -> Tensor:
        """The ``chosen`` columns of A @ H0: (own rows, F) of A. Every rank calls it."""
        multiplication = self.multiplication
        width = chosen.stop - chosen.start
        out = torch.empty(multiplication.num_rows, width, dtype=self.coded.dtype, device=multiplication.context.device)
        return multiplication.multiply_stages(self._decoded(chosen), out)

    def _decoded(self, chosen: slice) -> Iterator[Tensor | None]:
        coded = self.coded
        num_bytes, width = coded.rows.shape[1] * coded.rows.itemsize, chosen.stop - chosen.start
        for rows in self.stages:
            if rows is None:
                yield None
                continue
            decoded = empty_aligned(len(rows), width, like=rows.new_empty(0, dtype=coded.dtype))
            for some, out in zip(rows.split(ROWS_AT_ONCE), decoded.split(ROWS_AT_ONCE)):
                codes = _own_copy(some[:, :num_bytes]).view(coded.rows.dtype)
                columns = coded.codec.decode(codes, coded.dtype)[:, chosen]
                if self.multiplication.input_scale is None:
                    out.copy_(columns)
                else:
                    torch.mul(columns, _own_copy(some[:, num_bytes:]).view(coded.dtype), out=out)
            yield decoded


def _as_bytes(rows: Tensor) -> Tensor:
    """The (n, bytes) uint8 that (n, W) ``rows`` take."""
    return rows.contiguous().view(torch.uint8)


def _own_copy(part: Tensor) -> Tensor:
    """The same bytes in memory of their own, from whose beginning on they can be read as another dtype."""
    return part.clone(memory_format=torch.contiguous_format)
