"""The GPU benchmark: ``python -m fullgnn.bench.gpu``, one command for a machine with a GPU and little else installed.

It checks the kernels, measures what the GPU can do, and times products and epochs on graphs as large as the known ones,
inside a few minutes. Nothing here needs Hydra, numba, METIS or another library; what is there is used.

The command itself never touches the GPU (``supervise.py``): each job runs in a process of its own (``worker.py``), so
that a kernel that faults or hangs costs its own figure and no other. Results travel back one by one into one record
(``record.py``), which is written after each of them.
"""
