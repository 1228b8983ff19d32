"""The machine code of the kernels in Triton, compiled and read on a machine without a GPU.

table.py         the table of ``docs/results/gpu.md``: resources and loads of all kernels that the host launches
cases.py         the calls of that table, as in training; ``attention_cases.py`` has those of attention, and ``rare.py``
                 calls that training makes rarely
launched.py      compiles what the host launches at representative shapes, for three generations of GPUs, and reads its
                 accesses; the calls are those of ``cases.py``, ``edges.py``, ``rows.py``, ``sampler.py`` and
                 ``rare.py``, which together call every kernel
absent.py        compiles what the host would launch, instead of launching it
machine_code.py  reads PTX and cubin
"""
