"""Helpers that test_invariance.py shares with other test modules."""

TOLERANCE = {"float32": 1e-5, "float64": 1e-10}  # relative, for the loss after 50 epochs
DATASET = [
    "dataset=synthetic", "dataset.num_nodes=301", "dataset.num_edges=4301", "dataset.num_features=12",
    "dataset.num_classes=5",
]  # fmt: skip


TRAINING = ["train.epochs=50", "train.eval_every=0", "reorder.cluster_size=20"]
