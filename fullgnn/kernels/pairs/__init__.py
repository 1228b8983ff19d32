"""Scores of pairs of rows."""
