"""``python -m fullgnn.plan``: the options of a run, with their predicted costs."""
