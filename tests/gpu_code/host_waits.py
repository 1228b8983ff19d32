"""Counts where a step would make the host wait for a GPU, without a GPU.

    with HostWaits(model.parameters(), batch.tensors()) as waits:
        step()
    assert waits.counts == {}

A tensor *is on the device* if it is on a GPU; if it is among the tensors that are given; if an operator has made it of
such a tensor; if it is allocated with ``device=``; or if a tensor of the host was moved with ``to(device)``, where
``device`` is a ``torch.device``. So the CPU stands for the host and for the device. Arguments of Triton kernels are on
the device too, and what Triton's interpreter does inside a launch does not count.

What counts as a wait is what waits on CUDA: numbers that the host reads (``item``, ``cpu``, ``numpy``, ``tolist``, a
comparison in Python), results whose size the device computes (``nonzero``, a mask as an index, ``unique``,
``repeat_interleave`` without ``output_size``), ``bincount``, which reads its least and its largest number, and copies
between host and device that are not ``non_blocking``.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from fullgnn.kernels.support import gpu

aten = torch.ops.aten

WAITS = {
    aten._local_scalar_dense.default: ("item", 1),
    aten.equal.default: ("equal", 1),
    aten.nonzero.default: ("nonzero", 1),
    aten.masked_select.default: ("masked_select", 1),
    aten.bincount.default: ("bincount", 2),
    aten._unique2.default: ("unique", 1),
    aten.unique_dim.default: ("unique", 1),
    aten.unique_consecutive.default: ("unique", 1),
}
"""Operators by which the host waits, and how often each does."""
READS = {Tensor.numpy: "numpy", Tensor.tolist: "tolist", Tensor.__array__: "numpy"}
"""Methods that read memory without an operator, where that is the memory of the host."""


class HostWaits(TorchDispatchMode):
    """See the head of this file.

    Args:
        on_device: groups of tensors that are on the device from the beginning.
    """

    def __init__(self, *on_device: Iterable[Tensor]):
        super().__init__()
        self.counts: Counter[str] = Counter()
        """How often the host waited, by the name of the call."""
        self.num_calls = 0
        """Operators that were called."""
        self.num_launches = 0
        """Triton kernels that were launched."""
        # By address. They are kept alive, so that no tensor of the host gets the same address.
        self._on_device: dict[int, torch.UntypedStorage] = {}
        self._stack = ExitStack()
        for group in on_device:
            self.mark(group)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """A method of torch. With False, torch does not import its compiler, ``torch._dynamo``, for this mode."""
        return False

    @property
    def total(self) -> int:
        """How often the host waited."""
        return sum(self.counts.values())

    def mark(self, tree: Any) -> None:
        """The tensors in ``tree`` are on the device from now on."""
        leaves = tree if isinstance(tree, (tuple, list, dict, Tensor)) else list(tree)
        for leaf in tree_iter(leaves):
            if isinstance(leaf, Tensor) and leaf.layout == torch.strided:
                storage = leaf.untyped_storage()
                self._on_device[storage.data_ptr()] = storage

    def forget(self, tensor: Tensor) -> None:
        """``tensor`` is on the host from now on."""
        self._on_device.pop(tensor.untyped_storage().data_ptr(), None)

    def holds(self, tensor: Any) -> bool:
        """Whether ``tensor`` is a tensor on the device."""
        if not isinstance(tensor, Tensor) or tensor.layout != torch.strided:
            return False
        return tensor.device.type == "cuda" or tensor.untyped_storage().data_ptr() in self._on_device

    def __enter__(self) -> "HostWaits":
        super().__enter__()
        self._stack.enter_context(_Methods(self))
        if gpu.interpreting() and gpu.has_triton():
            from triton.runtime.interpreter import GridExecutor

            self._stack.enter_context(mock.patch.object(GridExecutor, "__call__", self._launching(GridExecutor)))
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()
        super().__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = [leaf for leaf in tree_iter((args, kwargs)) if isinstance(leaf, Tensor)]
        touches = any(self.holds(tensor) for tensor in given)
        self.num_calls += 1
        self._count(func, args, kwargs, touches)
        result = func(*args, **kwargs)
        if touches:
            self.mark([result])
        return result

    def _count(self, func: Any, args: Any, kwargs: dict[str, Any], touches: bool) -> None:
        if func is aten.copy_.default:
            blocks = not (kwargs.get("non_blocking") or (len(args) > 2 and args[2]))
            self.counts.update(["copy"] if blocks and self.holds(args[0]) != self.holds(args[1]) else [])
        if not touches:
            return
        if func in WAITS:
            name, times = WAITS[func]
            self.counts[name] += times
        elif func is aten.repeat_interleave.Tensor and kwargs.get("output_size") is None:
            self.counts["repeat_interleave"] += 1
        elif func in (aten.index.Tensor, aten.index_put_.default, aten.index_put.default):
            masks = [mask for mask in args[1] if mask is not None and mask.dtype in (torch.bool, torch.uint8)]
            fills = func is not aten.index.Tensor and args[2].numel() == 1 and len(masks) == len(args[1])
            self.counts.update(["mask"] if masks and not fills else [])  # filling with one number is a masked_fill

    def _launching(self, executor: Any) -> Callable[..., Any]:
        launch = executor.__call__

        def launched(grid: Any, *args: Any, **kwargs: Any) -> Any:
            self.num_launches += 1
            self.mark([args, kwargs])
            with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
                return launch(grid, *args, **kwargs)

        return launched


class _Methods(TorchFunctionMode):
    """The methods of tensors that no operator shows where both memories are those of the host."""

    def __init__(self, waits: HostWaits):
        super().__init__()
        self._waits = waits

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, waits = kwargs or {}, self._waits
        if func in READS and waits.holds(args[0]) and args[0].dim():
            waits.counts[READS[func]] += 1
        elif func is Tensor.cpu and waits.holds(args[0]):
            waits.counts["cpu"] += 1
            return self._moved(args[0], False)
        elif func is Tensor.to:
            device = kwargs.get("device", args[1] if len(args) > 1 else None)
            if device == "cpu" and isinstance(device, str) and waits.holds(args[0]):
                waits.counts["cpu"] += 1
                return self._moved(func(*args, **kwargs), False)
            if isinstance(device, torch.device) and not waits.holds(args[0]):
                waits.counts.update([] if kwargs.get("non_blocking") else ["copy"])
                return self._moved(func(*args, **kwargs), True)
        result = func(*args, **kwargs)
        if isinstance(kwargs.get("device"), torch.device) and isinstance(result, Tensor) and func is not Tensor.to:
            waits.mark([result])  # allocated there
        return result

    def _moved(self, tensor: Tensor, to_device: bool) -> Tensor:
        """A copy of ``tensor``, as a move to the other memory makes one; differentiable."""
        waits, num_calls = self._waits, self._waits.num_calls
        copy = tensor.clone()
        waits.num_calls = num_calls + 1
        if to_device:
            waits.mark([copy])
        else:
            waits.forget(copy)
        return copy
