"""What all kernels share: threads, vectors, rows in cache lines, CUDA graphs, where Triton serves."""
