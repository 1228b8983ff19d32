"""The benchmark: ``python -m fullgnn.bench op=...``. One file an operation, one harness for all of them.

``spmm.py``, ``epoch.py``, ``collectives.py`` and ``reorder.py`` say what is measured; ``harness.py`` says how;
``ours.py`` is the seam to this package and ``peers/`` holds the other libraries, used as their documentation advises.
"""
