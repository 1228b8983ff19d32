"""``python -m fullgnn.inspect``, and the function ``fullgnn.inspect``, which have one name.

``python -m`` needs a module of this name. After ``import fullgnn.inspect``, the name ``fullgnn.inspect`` stands for the
function all the same: see ``fullgnn/room.py``. All code is in the package ``fullgnn.report.inspection``.
"""

from fullgnn.report.inspection import inspect

__all__ = ["inspect"]

if __name__ == "__main__":
    from fullgnn.report.inspection.command import main

    main()
