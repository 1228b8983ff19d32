"""What the kernels in Triton become on a GPU, found on a machine without one.

variants.py      compiles the representative calls of every module of kernels for three generations of GPUs
table.py         the table of ``docs/results/gpu.md``: resources and loads of all that the host asks for
cases.py         the calls of that table, as in training; ``rare.py``: calls that training makes rarely
absent.py        compiles what the host would launch, instead of launching it
machine_code.py  reads PTX and cubin
"""
