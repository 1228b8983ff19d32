"""What all kernels use: threads, vectors, rows aligned to cache lines, CUDA graphs, tuning, availability of Triton."""
