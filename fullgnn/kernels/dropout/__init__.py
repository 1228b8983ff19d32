"""Dropout whose mask depends on the node alone, on CPUs and GPUs."""
