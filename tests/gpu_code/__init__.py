"""The machine code of the kernels in Triton, compiled and read on a machine without a GPU.

variants.py      compiles the representative calls of every module of kernels for three generations of GPUs
table.py         the table of ``docs/results/gpu.md``: resources and loads of all kernels that the host launches
cases.py         the calls of that table, as in training; ``attention_cases.py`` has those of attention, and ``rare.py``
                 calls that training makes rarely
launched.py      the accesses of what the host launches at representative shapes, which ``edges.py``, ``rows.py`` and
                 ``sampler.py`` call; together with ``rare.py``, they call every kernel
absent.py        compiles what the host would launch, instead of launching it
machine_code.py  reads PTX and cubin
"""
