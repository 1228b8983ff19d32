"""Zachary's karate club (1977), from networkx: 34 members, their friendships, and the side each one took."""

from pathlib import Path

import networkx
import numpy as np

from fullgnn.graph.graph import Graph
from fullgnn.graph.splits import few_label_split


def files() -> list[Path]:
    """None: networkx has the data."""
    return []


def load(train_per_class: int, num_val: int, seed: int) -> Graph:
    """The club: identity features, the two factions as classes, a few members of each for training."""
    club = networkx.karate_club_graph()
    faction = np.array(list(networkx.get_node_attributes(club, "club").values()))
    labels = np.unique(faction, return_inverse=True)[1]
    return Graph.from_networkx(
        club,
        features=np.eye(club.number_of_nodes(), dtype=np.float32),
        labels=labels,
        name="karate",
        **few_label_split(labels, train_per_class, num_val, seed),
    )
