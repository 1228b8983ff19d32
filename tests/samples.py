"""Which of the sampled cases run."""

import subprocess

from tests.commands import ROOT


def sample_offset() -> int:
    """The number of commits, so that the samples of successive commits are different ones; 0 without git."""
    counted = subprocess.run(["git", "rev-list", "--count", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return int(counted.stdout) if counted.returncode == 0 else 0
