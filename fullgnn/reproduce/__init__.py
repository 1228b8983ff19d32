"""``python -m fullgnn.reproduce target=...``: the tables and figures of Miao et al. 2023, ours beside theirs.

One module a target, with its ``Config`` (the schema of ``conf/experiment/reproduce/<target>.yaml``, which holds the
paper's numbers) and ``run(cfg) -> Result``. Everything around it is here: ``graphs`` finds or makes the datasets,
``timing`` measures, ``result`` is what a target returns, ``page`` and ``plot`` write it.
"""
