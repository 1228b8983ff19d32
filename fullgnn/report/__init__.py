"""``python -m fullgnn.report``: the page of some runs; and the table of a sweep."""
