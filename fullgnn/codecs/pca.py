"""Principal component analysis: rows in fewer dimensions."""

import numpy as np
import torch
from torch import Tensor

from fullgnn.codecs.codec import check_key
from fullgnn.codecs.features import Features
from fullgnn.kernels.dense.dense import matmul
from fullgnn.kernels.support.read_only import read_only_tensor

LEVELS = 127
"""Numbers above zero, and below, that 8 bits tell from each other."""


class PCA:
    """A row keeps its coordinates in the ``dimensions`` orthogonal directions in which features vary most.

    With x a row, m the mean and V, (F, dimensions), the first eigenvectors of the covariance matrix, the row keeps
    z = (x - m) V, which is decoded to z V^T + m. With 8 bits, a coordinate is rounded to one of 255 equally spaced
    numbers, up to the largest one of all nodes: four times as many directions in the same bytes. This is a rival of the
    codecs of Ma et al., "Eliminating data processing bottlenecks in GNN training over large graphs via two-level
    feature compression", PVLDB 17(11), 2024.

    Mean and covariance are those of all nodes, summed in float64 in one pass. The entry of an eigenvector that is
    largest in magnitude, the first one of several, is positive.

    The sums are the same bits for any number of threads of torch. The eigenvectors are those of NumPy's LAPACK, whose
    bits may depend on the machine: one rank learns, and the others take its state. The last bits of coordinates and of
    decoded rows are those of a matrix product of torch, which promises none.

    Args:
        dimensions: that are kept; features with fewer columns keep all of them.
        bits: of a coordinate: 32, a float, or 8.
    """

    def __init__(self, dimensions: int = 64, bits: int = 32):
        check_key("codec.dimensions", dimensions, dimensions >= 1, "1 or more")
        check_key("codec.bits", bits, bits in (8, 32), "8 or 32")
        self.dimensions, self.bits = dimensions, bits

    def learn(self, features: Features) -> None:
        """See ``Learning``.

        Raises:
            DataError: the squares of features are beyond float64.
        """
        from fullgnn.kernels.dense._dense_cpu import weight_gradient_cpu  # of any number of threads the same bits

        origin = np.zeros(features.num_columns)
        products, sums = (torch.zeros(*shape, dtype=torch.float64) for shape in (2 * origin.shape, origin.shape))
        for some, block in features.blocks("PCA: mean and covariance are summed"):
            if some.start == 0:  # features minus this mean lose fewer digits, if the mean is large beside the variance
                origin = block.mean(0, dtype=np.float64)
            if block.size:
                rows = read_only_tensor(block) - torch.from_numpy(origin)
                of_block = weight_gradient_cpu(rows, rows, None, 1.0, None)
                products += of_block[0]
                sums += of_block[1]
        num_nodes = max(1, features.num_nodes)
        mean = sums / num_nodes
        covariance = (products / num_nodes - torch.outer(mean, mean)).numpy()
        _, vectors = np.linalg.eigh(Features(covariance, "float64")[:])  # in ascending order of the variance
        kept = vectors[:, ::-1][:, : self.dimensions]
        if kept.size:
            kept = kept * np.where(kept[np.abs(kept).argmax(0), np.arange(kept.shape[1])] < 0, -1, 1)
        state = {"mean": origin + mean.numpy(), "components": np.ascontiguousarray(kept, np.float32)}
        self.load_state({name: torch.from_numpy(array) for name, array in state.items()})
        if self.bits == 8:
            largest = np.zeros(kept.shape[1], np.float32)
            for _, block in features.blocks("PCA: the largest coordinates are found"):
                np.maximum(largest, np.abs(self._coordinates(block)).max(0, initial=0), out=largest)
            steps = torch.from_numpy(largest / LEVELS)
            self.load_state({"mean": self._mean, "components": self._components, "steps": steps})

    def state(self) -> dict[str, np.ndarray]:
        """See ``Learning``: "mean", (F,) float64, "components", (F, dimensions) float32, and with 8 bits the distances
        of the numbers of a coordinate, "steps", (dimensions,) float32."""
        tensors = {"mean": self._mean, "components": self._components, "steps": self._steps}
        return {name: tensor.cpu().numpy() for name, tensor in tensors.items() if tensor is not None}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """See ``Learning``."""
        self._mean, self._components, self._steps = tensors["mean"], tensors["components"], tensors.get("steps")
        scaled = self._components if self._steps is None else self._components * self._steps
        self._transposed = scaled.t().contiguous()

    def encode(self, features: np.ndarray) -> np.ndarray:
        """See ``Codec``: (m, dimensions) float32, or int8.

        Raises:
            DataError: the coordinates are beyond float32.
        """
        encoded = np.empty((len(features), self._components.shape[1]), np.float32 if self.bits == 32 else np.int8)
        for rows in Features(features, features.dtype.str).slices():
            encoded[rows] = self._rounded(self._coordinates(features[rows]))
        return encoded

    def decode(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """See ``Codec``."""
        return matmul(rows.float(), self._transposed).to(dtype).add_(self._mean.to(dtype))

    def _coordinates(self, features: np.ndarray) -> np.ndarray:
        """(m, dimensions) float32, of a block of features."""
        block, components = read_only_tensor(features), self._components.cpu()
        coordinates = matmul((block - self._mean.cpu().to(block.dtype)).float(), components).numpy()
        return Features(coordinates, "float32")[:]

    def _rounded(self, coordinates: np.ndarray) -> np.ndarray:
        if self._steps is None:
            return coordinates
        steps = self._steps.cpu().numpy()
        return np.rint(coordinates / np.where(steps > 0, steps, 1)).clip(-LEVELS, LEVELS)
