"""Scalar quantisation: a feature is kept as the number of one of 2, 4, 16 or 256 equally spaced levels.

    code = round((x - low) / step), from 0 to 2^bits - 1; x' = low + step code

The levels are those of a column, learnt from all features, or those of a row, kept in the row (``_scalar_levels.py``).
With one bit, the code tells what is above the mean, and the levels are the means of both sides. Decoding is compiled on
a CPU (``_scalar_cpu.py``); elsewhere, torch operations compute the same bits.
"""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fullgnn.codecs._scalar_levels import levels_of_columns, levels_of_rows
from fullgnn.codecs.codec import check_key
from fullgnn.codecs.features import Features
from fullgnn.kernels.support.aligned import fresh_rows
from fullgnn.kernels.support.process import PIECES, even_slices, parallel_for
from fullgnn.kernels.support.read_only import read_only_tensor
from fullgnn.room import module_on_use

if TYPE_CHECKING:
    from fullgnn.codecs import _scalar_cpu
else:
    _scalar_cpu = module_on_use("fullgnn.codecs._scalar_cpu")

PART_BYTES = 1 << 17
"""A thread decodes about so many bytes at a time, or more."""


class Scalar:
    """Uniform quantisation to a few bits.

    A row has ceil(F bits / 8) bytes with ``scale=column``, and 8 more with ``scale=row``: its lowest and highest level
    in float32. Zeros and ones stay exact, and so do equal numbers of float32, but -0 becomes 0. With ``scale=column``,
    so do 2 to 2^bits equally spaced numbers, if low + step code is exact for them.

    Args:
        bits: 1, 2, 4 or 8 for each feature.
        scale: ``column`` or ``row``, to which the levels belong.
        sample_nodes: on so many rows three choices of the levels of a column are compared.
        seed: of the choice of these rows.
    """

    def __init__(self, bits: int = 2, scale: str = "column", sample_nodes: int = 16384, seed: int = 0):
        check_key("codec.bits", bits, bits in (1, 2, 4, 8), "1, 2, 4 or 8")
        check_key("codec.scale", scale, scale in ("column", "row"), "column or row")
        check_key("codec.sample_nodes", sample_nodes, isinstance(sample_nodes, int) and sample_nodes >= 1, "1 or more")
        check_key("codec.seed", seed, isinstance(seed, int) and seed >= 0, "0 or more")
        self._bits, self._head, self._sample_nodes, self._seed = bits, 8 * (scale == "row"), sample_nodes, seed

    def learn(self, features: Features) -> None:
        """See ``Learning``. With ``scale=row``, only the number of columns is learnt."""
        state = {"num_columns": np.array([features.num_columns])}
        if not self._head:
            levels = levels_of_columns(features, self._bits, self._sample_nodes, self._seed)
            state |= {name: array[0] for name, array in zip(("low", "step", "origin"), levels)}
        self.load_state({name: torch.from_numpy(array) for name, array in state.items()})

    def state(self) -> dict[str, np.ndarray]:
        """See ``Learning``: the number of columns, and (F,) each their ``_scalar_levels.Levels``."""
        return {name: tensor.cpu().numpy() for name, tensor in self._state.items()}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """See ``Learning``."""
        self._state, self._num_columns = tensors, int(tensors["num_columns"])

    def encode(self, features: np.ndarray) -> np.ndarray:
        """See ``Codec``: (m, W) uint8."""
        x, state = read_only_tensor(features).numpy(), self.state()
        rows = np.zeros((len(x), self._head + -(-x.shape[1] * self._bits // 8)), np.uint8)

        def work(part: slice) -> None:
            if self._head:
                low, high, origin = levels_of_rows(x[part], self._bits)
                rows[part, :8] = np.concatenate([low, high], 1).view(np.uint8)
                step = (high.astype(np.float64) - low) / (2**self._bits - 1)
            else:
                step, origin = state["step"][None].astype(np.float64), state["origin"][None]
            _scalar_cpu.pack_rows(x[part], origin, np.where(step > 0, step, 1), self._bits, rows[part, self._head :])

        parallel_for(work, even_slices(len(x), PIECES) if x.size else [])
        return rows

    def decode(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """See ``Codec``."""
        return self.decode_rows(rows, None, dtype)

    def decode_rows(self, table: Tensor, index: Tensor | None, dtype: torch.dtype) -> Tensor:
        """(m, F) features of ``dtype``, of the (m,) int32 or int64 rows ``index`` of an (n, W) ``table`` of encoded
        ones, in one pass on a CPU; None: of all rows."""
        if table.device.type != "cpu":
            return self.decode_torch(table if index is None else table.index_select(0, index), dtype)
        none, ids = torch.empty(0, dtype=dtype), torch.empty(0, dtype=torch.int64) if index is None else index
        low, step = (none if self._head else self._state[name].to(dtype) for name in ("low", "step"))
        out = fresh_rows(len(table if index is None else index), self._num_columns, dtype)
        arguments = *(tensor.contiguous().numpy() for tensor in (table, ids, low, step, out)), self._head, self._bits
        num_parts = min(PIECES, 1 + out.nbytes // PART_BYTES)
        parallel_for(
            lambda part: _scalar_cpu.unpack_rows(*arguments, part.start, part.stop), even_slices(len(out), num_parts)
        )
        return out

    def decode_torch(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """``decode`` as torch operations."""
        shift = torch.arange(0, 8, self._bits, dtype=torch.uint8, device=rows.device)[:, None]
        top = 2**self._bits - 1
        code = ((rows[:, None, self._head :] >> shift) & top).flatten(1)[:, : self._num_columns].to(dtype)
        if self._head:
            low, high = rows[:, :8].flatten().view(torch.float32).view(len(rows), 2).to(dtype).split(1, 1)
            step = (high - low) / torch.full_like(low, top)  # by a number, a GPU multiplies with its inverse
        else:
            low, step = self._state["low"].to(dtype), self._state["step"].to(dtype)
        return code.mul_(step).add_(low)
