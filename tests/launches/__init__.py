"""Every launch of a kernel in Triton's interpreter is watched for what would be wrong on a GPU.

On a GPU the programs of a launch run at the same time, and so do the threads of a program. The interpreter runs one
program after another, so a kernel whose programs get in each other's way is right there and wrong on a GPU.

watch.py    sees each access of a launch, and finds those outside the elements of its argument
overlap.py  finds accesses of one launch whose order a GPU does not keep
planted.py  kernels with a fault of each kind, and kernels without
"""
