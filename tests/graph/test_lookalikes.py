"""Sizes of the synthetic graphs that imitate known datasets."""

from fullgnn.graph.lookalikes import LOOKALIKES, Lookalike


def test_sizes_are_those_of_the_configuration():
    shape = LOOKALIKES["products-like"]
    assert shape == Lookalike(2_449_029, 126_167_181, 100, 47, 64)
    assert shape.scaled(1.0) == (shape.num_nodes, (shape.num_edges - shape.num_nodes) // 2 * 2)
