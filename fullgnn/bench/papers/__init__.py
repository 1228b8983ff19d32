"""``python -m fullgnn.reproduce target=...``: tables and figures of papers, ours beside theirs.

A target is a row of a table: ``CASES`` of its paper has a ``Target`` for it, the heads of its columns and the functions
that fill them, and ``conf/experiment/reproduce/<target>.yaml`` has its keys, the paper's numbers and the notes.

    hetu               Miao et al. 2023
    fused              Li et al. 2025, fused sampling and overlapped transfer
    pagraph            Lin et al. 2020
    sparsification     Ma et al. 2024
    time_to_accuracy   full-batch beside sampled training

All of them share the other modules: ``config`` knows the keys, ``graphs`` finds or makes the datasets, ``trainings``
trains, has a training epoch by epoch and times epochs of full-batch training, ``batches`` those of sampled training,
``products`` single products, ``target`` is the shape of a target, ``result`` what it returns, and ``page`` writes it.
"""
