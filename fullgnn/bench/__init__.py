"""The benchmark: ``python -m fullgnn.bench op=...``.

``primitives.py`` (products, orders and collectives), ``epoch.py``, ``sampling.py`` and ``gpu/`` say what is measured,
``problem.py`` on which graph, and ``harness.py`` how. ``peers/`` holds the other libraries, used as their documentation
advises.
"""
