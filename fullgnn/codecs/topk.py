"""Sparse features: where the largest and the smallest values of a row are, and a codebook of what they are.

The columns are cut into groups of 256. Of each group a row keeps the positions of its k largest values, and of the k
smallest of the others, in a byte each; values are not kept. The codebook of a group has 2 k numbers: the mean, over a
sample of nodes, of the largest value, of the second largest, and so on. A decoded row has these at the positions, and
zeros elsewhere.

Equal values are ordered by their positions, and -0 equals 0. A group of w columns keeps at most floor(w / 2) of each.

Source: Ma, Xu, Li and Zhong, "Accelerating training of large-scale graph neural networks through input feature
sparsification" (2024).
"""

import logging
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fullgnn.codecs.codec import check_key
from fullgnn.codecs.features import Features
from fullgnn.kernels.support import gpu
from fullgnn.kernels.support.aligned import fresh_rows
from fullgnn.kernels.support.process import PIECES, even_slices, parallel_for
from fullgnn.room import module_on_use

if TYPE_CHECKING:
    from fullgnn.codecs import _topk_cpu, _topk_gpu
else:
    _topk_cpu = module_on_use("fullgnn.codecs._topk_cpu")
    _topk_gpu = module_on_use("fullgnn.codecs._topk_gpu")

log = logging.getLogger(__name__)

GROUP = 256
"""Columns of a group: a position in it is one byte."""
SPARSE_BYTES = 8
"""Bytes of a feature in sparse rows: its column and its value."""


class TopK:
    """Positions of the k largest and the k smallest values of every 256 columns, see the head of this file.

    A row takes 2 k bytes a group, so that whole groups are 512 / k times smaller than in float32.

    Args:
        k: how many of the largest, and how many of the smallest values, from 1 to 128.
        sample_nodes: how many nodes the codebook is the mean over.
        seed: of that sample.

    Raises:
        ConfigError: a number is out of range.
    """

    def __init__(self, k: int, sample_nodes: int = 65536, seed: int = 0):
        check_key("codec.k", k, 1 <= k <= GROUP // 2, f"1 to {GROUP // 2}")
        check_key("codec.sample_nodes", sample_nodes, sample_nodes >= 1, "1 or more")
        self.k, self.sample_nodes, self.seed = k, sample_nodes, seed

    def learn(self, features: Features) -> None:
        """See ``Learning``: the codebook."""
        self._set_shape(features.num_columns)
        sample = features.sample(self.sample_nodes, self.seed)
        num_nonzero = np.count_nonzero(sample) / max(1, len(sample))
        if num_nonzero * SPARSE_BYTES < len(self._columns):
            log.info(
                "codec=topk: a node has %.1f features that are not zero: sparse rows would take %.0f bytes, codes %d",
                num_nonzero,
                num_nonzero * SPARSE_BYTES,
                len(self._columns),
            )
        sums = np.zeros(len(self._columns))
        _topk_cpu.add_values(sample, self.encode(sample), self._columns, sums)
        codebook = torch.from_numpy((sums / max(1, len(sample))).astype(np.float32))
        self.load_state({"codebook": codebook, "num_columns": torch.tensor(features.num_columns)})

    def encode(self, features: np.ndarray) -> np.ndarray:
        """See ``Codec``: (m, W) uint8, of each group the positions of its largest values, then of its smallest."""
        self._set_shape(features.shape[1])
        codes = np.empty((len(features), len(self._columns)), np.uint8)
        if codes.size:
            slices = even_slices(len(features), PIECES)
            parallel_for(lambda rows: _topk_cpu.positions(features[rows], self._counts, codes[rows]), slices)
        return codes

    def state(self) -> dict[str, np.ndarray]:
        """See ``Learning``: the (W,) float32 codebook, and the number of columns."""
        return {"codebook": self._codebook.numpy(), "num_columns": np.array([self._num_columns])}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """See ``Learning``."""
        self._set_shape(int(tensors["num_columns"]))
        self._codebook = tensors["codebook"]
        self._columns_there = torch.from_numpy(self._columns).to(self._codebook.device)

    def decode(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """See ``Codec``."""
        return self.decode_rows(rows, torch.arange(len(rows), device=rows.device), dtype)

    def decode_rows(self, table: Tensor, index: Tensor, dtype: torch.dtype) -> Tensor:
        """(m, F) features of the rows ``index``, (m,) int64, of the (n, W) uint8 ``table``."""
        shape, codebook = (len(index), self._num_columns), self._codebook.to(dtype)
        if gpu.runs_triton(table.device):
            out = torch.empty(shape, dtype=dtype, device=table.device)
            _topk_gpu.decode(table, index, self._columns_there, codebook, out)
            return out
        if table.device.type != "cpu":
            place = table.index_select(0, index) + self._columns_there
            zeros = torch.zeros(shape, dtype=dtype, device=table.device)
            return zeros.scatter_(1, place, codebook.expand_as(place))
        out = fresh_rows(*shape, dtype)
        codes, ids, values, decoded = table.numpy(), index.numpy(), codebook.numpy(), out.numpy()

        def decode(rows: slice) -> None:
            _topk_cpu.decode(codes, ids[rows], self._counts, values, decoded[rows])

        parallel_for(decode, even_slices(len(index), PIECES))
        return out

    def _set_shape(self, num_columns: int) -> None:
        """Take the number of columns, and with it how many positions of which group a row keeps."""
        widths = [min(GROUP, num_columns - first) for first in range(0, num_columns, GROUP)]
        self._num_columns = num_columns
        self._counts = np.array([min(self.k, width // 2) for width in widths], np.int64)  # (groups,)
        self._columns = np.repeat(GROUP * np.arange(len(widths)), 2 * self._counts)  # (W,), where its group begins
