"""Modules that all kernels use: threads, vectors, rows aligned to cache lines, CUDA graphs, tuning, Triton."""
