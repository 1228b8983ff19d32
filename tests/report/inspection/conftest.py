"""The fixtures of ``tests/graph`` that these tests share."""

from tests.graph.conftest import compose_dataset, shared_data  # noqa: F401  # fixtures
