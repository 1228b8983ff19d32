"""The GPU benchmark: ``python -m fullgnn.bench.gpu``, one command for a machine with a GPU and little else installed.

It checks the kernels, measures what the GPU can do, and times products and epochs on graphs as large as the known ones,
inside a few minutes. Epochs, and the checks that train, need Hydra; other libraries are used if they are there.

The command itself never touches the GPU. It walks a list of items (``parts.py``) and runs each in a process with a time
limit (``items.py``), so that a kernel that faults or hangs costs one item. The process runs one module
(``worker.py``). Its results come back through a file into one record (``record.py``), which is written whenever there
are new ones.
"""
