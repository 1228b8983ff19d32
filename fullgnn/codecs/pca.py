"""Principal component analysis: rows in fewer dimensions."""

import numpy as np
import torch
from torch import Tensor

from fullgnn.codecs.features import Features
from fullgnn.errors import ConfigError
from fullgnn.kernels.dense.dense import matmul
from fullgnn.kernels.support.read_only import read_only_tensor


class PCA:
    """A row keeps its coordinates, float32, in the ``dimensions`` orthogonal directions in which features vary most.

    With x a row, m the mean and V, (F, dimensions), the first eigenvectors of the covariance matrix, the row keeps
    (x - m) V, and z is decoded to z V^T + m. This is a rival of the codecs of Ma et al., "Eliminating data processing
    bottlenecks in GNN training over large graphs via two-level feature compression", PVLDB 17(11), 2024.

    Mean and covariance are those of all nodes, summed in float64 in one pass. The entry of an eigenvector that is
    largest in magnitude, the first one of several, is positive.

    The sums are the same bits for any number of threads of torch. The eigenvectors are those of NumPy's LAPACK, whose
    bits may depend on the machine: one rank learns, and the others take its state. The last bits of encoded and decoded
    rows are those of a matrix product of torch, which promises none.

    Args:
        dimensions: that are kept; features with fewer columns keep all of them.
    """

    def __init__(self, dimensions: int = 64):
        if dimensions < 1:
            raise ConfigError(f"codec.dimensions={dimensions} is out of range: give 1 or more")
        self.dimensions = dimensions

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

    def state(self) -> dict[str, np.ndarray]:
        """See ``Learning``: "mean", (F,) float64, and "components", (F, dimensions) float32."""
        return {"mean": self._mean.cpu().numpy(), "components": self._components.cpu().numpy()}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """See ``Learning``."""
        self._mean, self._components = tensors["mean"], tensors["components"]
        self._transposed = self._components.t().contiguous()

    def encode(self, features: np.ndarray) -> np.ndarray:
        """See ``Codec``: (m, dimensions) float32.

        Raises:
            DataError: the coordinates are beyond float32.
        """
        mean, components = self._mean.cpu(), self._components.cpu()
        found = np.empty((len(features), components.shape[1]), np.float32)
        for rows in Features(features, features.dtype.str).slices():
            block = read_only_tensor(features[rows])
            found[rows] = matmul((block - mean.to(block.dtype)).float(), components).numpy()
        return Features(found, "float32")[:]

    def decode(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """See ``Codec``."""
        return matmul(rows, self._transposed).to(dtype).add_(self._mean.to(dtype))
