"""What is loaded once for all commands and ranks of tests, see ``commands.forkserver``."""

import hydra.main  # noqa: F401
import networkx  # noqa: F401
import scipy.sparse.csgraph  # noqa: F401
import torch.distributed.run  # noqa: F401

import fullgnn.train  # noqa: F401
from fullgnn.kernels.support.vectors import load_compiler

load_compiler()
