"""The targets of Ma, Xu, Li and Zhong, "Accelerating training of large-scale graph neural networks through input
feature sparsification" (2024), and what goes past the paper.

    data.py                graphs on which an accuracy can fall: words, projected to dense features
    training.py            one training, with features as a codec keeps them
    losses.py              accuracy that codecs cost, in pairs of runs with the same split and the same first weights
    similarity.py          how much the outputs of the layers resemble those of full features
    curves.py              accuracy by epoch
    accuracy_config.py     the keys of the targets of accuracy
    accuracy_cases.py      these targets: each is a row of a table
"""
