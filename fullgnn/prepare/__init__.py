"""Prepare a graph for so many block rows: load, partition, order, permute and cut it, and keep it as a folder."""
