"""Operations of ``python -m fullgnn.bench`` for GPUs, and the GPU benchmark, ``python -m fullgnn.bench.gpu``.

The operations are ``rates`` and ``products`` (``products.py``), ``sweep`` and ``hits``, ``checks`` and ``drill``
(``checks.py``). Their graphs are made on the device (``bench/problem.py``).

The benchmark is one command for a machine with a GPU and little else installed. It checks the kernels, measures what
the GPU can do, and times products and epochs on graphs as large as the known ones, inside a few minutes. The command
itself never touches the GPU. Each of its parts (``parts.py``) runs one command after the other, in a process with a
time limit, so that a kernel that faults or hangs costs one command. What a command has measured is in its own record;
the part joins these records into one, and into one page (``page.py``), whenever there are new results.
"""
