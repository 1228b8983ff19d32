"""The benchmark: ``python -m fullgnn.bench op=...``.

``spmm.py`` (also ``op=reorder``), ``epoch.py`` and ``collectives.py`` say what is measured; ``harness.py`` says how;
``ours.py`` is the seam to this package, and ``peers/`` holds the other libraries, used as their documentation advises.
"""
