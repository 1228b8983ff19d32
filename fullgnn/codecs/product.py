"""Product quantization: one byte for each group of columns."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fullgnn.codecs.codec import check_key
from fullgnn.codecs.features import Features
from fullgnn.kernels.support.aligned import fresh_rows
from fullgnn.kernels.support.process import PIECES, even_slices, parallel_for
from fullgnn.kernels.support.read_only import read_only_tensor
from fullgnn.room import module_on_use

if TYPE_CHECKING:
    from fullgnn.codecs import _product_cpu
else:
    _product_cpu = module_on_use("fullgnn.codecs._product_cpu")

PARALLEL_NUMBERS = 1 << 16  # with fewer numbers, starting work on a thread costs more than it saves


class Product:
    """A row keeps, for each group of consecutive columns, the number of the nearest of 256 centroids, which is a byte.

    Source: Jégou, Douze, Schmid, "Product quantization for nearest neighbor search", TPAMI 2011. The centroids of a
    group are learnt by k-means: k-means++ (Arthur, Vassilvitskii, SODA 2007) chooses the first ones among a sample of
    nodes, and the iterations of Lloyd move them. A centroid that is the nearest of no node of the sample stays.

    A column with large numbers counts more than the others of its group. Distances are float32: a square above 3e38 is
    infinite, one below 1e-45 is 0. Codes and centroids are the same bits for any number of threads.

    Args:
        columns: of a group; the last group may have fewer. A row of F columns takes ceil(F / columns) bytes.
        sample_nodes: how many nodes are drawn for k-means; their features must fit the memory.
        iterations: of Lloyd.
        seed: of the sample and of k-means++.
    """

    def __init__(self, columns: int = 16, sample_nodes: int = 65536, iterations: int = 10, seed: int = 0):
        numbers = {"columns": columns, "sample_nodes": sample_nodes, "iterations": iterations, "seed": seed}
        for key, number in numbers.items():
            least = int(key != "seed")
            check_key(f"codec.{key}", number, number >= least, f"{least} or more")
        self.columns, self.sample_nodes, self.iterations, self.seed = columns, sample_nodes, iterations, seed

    def learn(self, features: Features) -> None:
        """See ``Learning``. A task of a thread is a group of columns."""
        sample = _float32(features.sample(self.sample_nodes, self.seed))
        centroids = np.zeros((sample.shape[1], _product_cpu.CENTROIDS), np.float32)

        def learn_group(group: int) -> None:
            columns = slice(group * self.columns, (group + 1) * self.columns)
            rows, random = sample[:, columns].copy(), np.random.default_rng([self.seed, group])
            _product_cpu.first_centroids(rows.T.copy(), random.random(_product_cpu.CENTROIDS), centroids[columns])
            for _ in range(self.iterations):
                _product_cpu.refine(rows, centroids[columns])

        if len(sample):
            parallel_for(learn_group, range(-(-sample.shape[1] // self.columns)))
        self.load_state({"centroids": torch.from_numpy(centroids)})

    def state(self) -> dict[str, np.ndarray]:
        """See ``Learning``: column f of the centroids of its group is ``centroids[f]`` of (F, 256) float32."""
        return {"centroids": self._centroids}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """See ``Learning``."""
        centroids = tensors["centroids"]
        self._centroids = centroids.cpu().numpy()
        width = max(1, min(self.columns, len(centroids)))
        padded = torch.nn.functional.pad(centroids, (0, 0, 0, -len(centroids) % width))
        self.table = padded.view(len(padded) // width, width, centroids.shape[1]).transpose(1, 2).contiguous()

    def encode(self, features: np.ndarray) -> np.ndarray:
        """See ``Codec``: (m, num_groups) uint8. Of several nearest centroids, the first one is taken."""
        rows = _float32(features)
        assert rows.shape[1] == len(self._centroids), (rows.shape, len(self._centroids))
        codes = np.empty((len(rows), len(self.table)), np.uint8)
        parallel_for(
            lambda some: _product_cpu.encode(rows[some], self._centroids, self.columns, codes[some]),
            even_slices(len(rows), PIECES if rows.size >= PARALLEL_NUMBERS else 1),
        )
        return codes

    def decode(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """See ``Codec``."""
        if rows.device.type == "cpu":
            return self.decode_rows(rows, torch.arange(len(rows)), dtype)
        return looked_up(self.table, rows)[:, : len(self._centroids)].to(dtype).contiguous()

    def decode_rows(self, table: Tensor, index: Tensor, dtype: torch.dtype) -> Tensor:
        """(m, F) decoded rows ``index``, (m,), of the (n, num_groups) encoded ``table``, in one pass on the CPU."""
        if table.device.type != "cpu":
            return self.decode(table.index_select(0, index), dtype)
        out = fresh_rows(len(index), len(self._centroids), dtype)
        arrays = self.table.numpy(), table.numpy()
        parallel_for(
            lambda some: _product_cpu.decode(*arrays, index.numpy()[some], out.numpy()[some]),
            even_slices(len(index), PIECES if out.numel() >= PARALLEL_NUMBERS else 1),
        )
        return out


def looked_up(table: Tensor, codes: Tensor) -> Tensor:
    """(m, num_groups * w) centroids of the (num_groups, 256, w) ``table``, of (m, num_groups) codes, on any device."""
    num_groups, num_centroids, width = table.shape
    first = torch.arange(num_groups, dtype=torch.int32, device=codes.device) * num_centroids
    centroids = table.view(num_groups * num_centroids, width).index_select(0, (codes + first).view(-1))
    return centroids.view(len(codes), num_groups * width)


def _float32(features: np.ndarray) -> np.ndarray:
    """The features as float32; raises DataError if there are numbers that float32 does not hold."""
    return read_only_tensor(Features(features, "float32")[:]).numpy()
