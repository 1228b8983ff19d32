"""Support for all kernels: threads, vectors, rows in cache lines, CUDA graphs, tuning, availability of Triton."""
