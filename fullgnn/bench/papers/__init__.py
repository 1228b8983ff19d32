"""``python -m fullgnn.reproduce target=...``: the tables and figures of Miao et al. 2023, ours beside theirs.

Each target is a module with a ``Config``, the schema of ``conf/experiment/reproduce/<target>.yaml``, and a function
``run(cfg) -> Result``; its YAML holds the paper's numbers and the notes. All targets share the other modules:
``graphs`` finds or makes the datasets, ``jobs`` trains, ``products`` times single products, ``result`` is what a target
returns, ``page`` and ``plot`` write it.
"""
