"""Tests of sampled training."""
