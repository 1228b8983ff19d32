"""``python -m fullgnn.inspect``, and the function ``fullgnn.inspect``, which have one name.

``python -m`` needs a module of this name, and importing a module sets an attribute of its package: after ``import
fullgnn.inspect``, the name ``fullgnn.inspect`` would stand for this module, and the function would be hidden. So an
import of this module ends with the function in its place: Python binds whatever ``sys.modules`` holds when a module has
been executed. All code is in the package ``fullgnn.inspection``.
"""

import sys

from fullgnn.inspection import inspect

if __name__ == "__main__":
    from fullgnn.inspection.command import main

    main()
else:
    inspect.__spec__ = __spec__  # type: ignore[attr-defined]  # by which runpy finds a module that was imported before
    sys.modules[__name__] = inspect  # type: ignore[assignment]
