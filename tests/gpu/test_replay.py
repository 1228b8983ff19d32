"""A training with dropout has the same losses, to the bit, replayed as a CUDA graph and launched step by step."""

import pytest

pytest.importorskip("hydra")

from fullgnn.engine.cuda_graph import REPLAYED
from tests.cases import config, layout_overrides
from tests.engine.cuda_graph import on_gpu


@pytest.mark.gpu
def test_replayed_epochs_have_the_same_losses(ranks) -> None:
    """The graph has 20,000 nodes and 800,000 edges; kernel=csr does not depend on timing."""
    graph = ["dataset=products-like", "dataset.scale=0.008", "kernel=csr", "runtime.dtype=float32"]
    training = ["experiment=full", "model.dropout=0.5", "train.epochs=12", *layout_overrides(1)]
    (by_mode,) = ranks(1)(on_gpu, config(*training, *graph))
    if by_mode is None:
        pytest.skip("the rank of this pool is on the CPU")
    assert by_mode["auto"]["outcome"] == REPLAYED and by_mode["auto"]["losses"] == by_mode["never"]["losses"]
