"""A dataset that takes its time, of users who load theirs from a slow disk."""

import os
import signal
import time

from fullgnn.graph import Graph
from fullgnn.graph.datasets import karate


def load(seconds: float = 0.0, end_by: int = 0) -> Graph:
    """Zachary's club, after ``seconds``; or the end of the process by the signal ``end_by``."""
    time.sleep(seconds)
    if end_by:
        os.kill(os.getpid(), signal.Signals(end_by))
    return karate.load(train_per_class=4, num_val=8, seed=0)
