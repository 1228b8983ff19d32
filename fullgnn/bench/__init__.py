"""The benchmark: ``python -m fullgnn.bench op=...``.

``spmm.py`` (also ``op=reorder``), ``epoch.py`` and ``collectives.py`` say what is measured, ``problem.py`` on which
graph, and ``harness.py`` how. ``peers/`` holds the other libraries, used as their documentation advises.
"""
