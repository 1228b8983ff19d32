"""A GPU that is a CPU: tensors that say they are on ``cuda:0``, and raise where tensors of a GPU raise.

    with FakeCuda() as cuda:
        x = torch.ones(3).to("cuda:0")       # x.device is cuda:0, its memory is that of the CPU
        x + torch.ones(3)                    # raises: two devices
        x.sum().item()                       # cuda.waits == {"item": 1}

Code that chooses by ``device.type`` therefore runs as on a GPU: it launches Triton kernels (in Triton's interpreter),
copies on streams of its own, pins memory and records events. ``torch.cuda`` is replaced as far as fullgnn uses it.

    raises    operators on tensors of both devices (a number in a tensor of the host is allowed); ``numpy`` of a tensor
              of the GPU; a copy with ``non_blocking`` whose host memory is not pinned
    counts    ``waits``, by name: what makes the host wait for the GPU, as in ``host_waits.py``, and copies between the
              devices that block; ``launches``, by kind: operators that are no view and no allocation, Triton kernels
              and collectives

Everything runs at once and in the order of Python; ``fake_streams.py`` checks the order that the streams promise. In
torch itself the tensors are those of a CPU, so operators compute what they compute there. Sparse tensors are missing.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._foreach_utils import _group_tensors_by_device_and_dtype
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map_only

from tests.gpu_code.fake_streams import Streams
from tests.gpu_code.host_waits import WAITS
from tests.gpu_code.launch_recorder import ALLOCATES

aten = torch.ops.aten
HOST, DEVICE = torch.device("cpu"), torch.device("cuda", 0)
INDEXED = (aten.index.Tensor, aten.index_put_.default, aten.index_put.default)


class CudaTensor(Tensor):
    """A tensor of the fake GPU; its memory is that of the CPU."""

    @staticmethod
    def __new__(cls, memory: Tensor, requires_grad: bool = False) -> "CudaTensor":
        return Tensor._make_subclass(cls, memory, requires_grad)

    device = property(lambda self: DEVICE)  # type: ignore[assignment]
    is_cuda = property(lambda self: True)  # type: ignore[assignment]
    is_cpu = property(lambda self: False)  # type: ignore[assignment]
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        copy = self.detach().clone()
        return torch.nn.Parameter(copy, self.requires_grad) if isinstance(self, torch.nn.Parameter) else copy

    def record_stream(self, stream: Any) -> None:
        """All memory is kept; see ``fake_streams.py``."""

    def materialize(self, shape: tuple[int, ...]) -> None:
        """Give an ``UninitializedParameter`` that was moved to the fake GPU its shape."""
        with torch.no_grad(), torch._C._DisableTorchDispatch():
            self.set_(torch.empty(shape, dtype=self.dtype))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} is called outside of FakeCuda")


def on_cpu(tensor: Tensor) -> Tensor:
    """The memory of ``tensor`` as a tensor of the CPU."""
    if not isinstance(tensor, CudaTensor):
        return tensor
    with torch._C._DisableTorchDispatch():
        empty = torch.empty(0, dtype=tensor.dtype)
        return empty.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())


class FakeCuda(TorchDispatchMode):
    """See the head of this file."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()
        self.launches: Counter[str] = Counter()
        self.moves = False
        """Whether a copy goes to the host."""
        self.streams = Streams()
        self._pinned: list[range] = []  # addresses
        self._kept: list[torch.UntypedStorage] = []  # so that no other memory gets the address of pinned memory
        self._stack = ExitStack()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """A method of torch. With False, torch does not import its compiler, ``torch._dynamo``, for this mode."""
        return False

    def __enter__(self) -> "FakeCuda":
        from triton.runtime.interpreter import GridExecutor

        super().__enter__()
        enter, launch = self._stack.enter_context, GridExecutor.__call__
        enter(_Methods(self))
        runtime = SimpleNamespace(cudaHostRegister=self._lock, cudaHostUnregister=self._unlock)
        enter(mock.patch.object(torch.cuda, "cudart", lambda: runtime))
        for name, replacement in self.streams.replacements().items():
            enter(mock.patch.object(torch.cuda, name, replacement))
        # Module.to gives a module new parameters, in place of new memory for its old ones.
        enter(mock.patch.object(torch, "_has_compatible_shallow_copy_type", lambda old, new: False))
        enter(mock.patch.object(torch.optim.Optimizer, "_group_tensors_by_device_and_dtype", staticmethod(_groups)))
        enter(mock.patch.object(GridExecutor, "__call__", lambda *args, **kwargs: self._kernel(launch, args, kwargs)))
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()
        super().__exit__(*error)

    def is_pinned(self, tensor: Tensor) -> bool:
        return not tensor.numel() or any(tensor.data_ptr() in addresses for addresses in self._pinned)

    def pin(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        self._kept.append(storage)
        self._lock(storage.data_ptr(), storage.nbytes(), 0)
        return tensor

    def _lock(self, address: int, num_bytes: int, flags: int) -> int:
        """``cudaHostRegister``."""
        self._pinned.append(range(address, address + num_bytes))
        return 0

    def _unlock(self, address: int) -> None:
        self._pinned = [addresses for addresses in self._pinned if addresses.start != address]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        given = [leaf for leaf in tree_iter((args, kwargs)) if isinstance(leaf, Tensor)]
        from_device = any(isinstance(leaf, CudaTensor) for leaf in given)
        to_device = from_device
        if kwargs.get("device") is not None:
            # A backward pass copies to the device that torch sees, the host, wherever the forward pass was.
            stays = func is aten._to_copy.default and from_device and not self.moves
            to_device, kwargs["device"] = stays or torch.device(kwargs["device"]).type == "cuda", HOST
        pins, num_waits = kwargs.pop("pin_memory", None), self.waits.total()
        if func in (aten._to_copy.default, aten.copy_.default):
            self._copied(func, args, kwargs, from_device, to_device)
        elif from_device:
            self._check(func, args, kwargs, given)
        cpu_args, cpu_kwargs = tree_map_only(Tensor, on_cpu, (args, kwargs))
        result = func(*cpu_args, **cpu_kwargs)
        if pins:
            self.pin(result)
        if not (from_device or to_device):
            self.streams.host_reads(given)
            return result
        known = {id(new): old for old, new in zip(given, _leaves((cpu_args, cpu_kwargs)), strict=True)}
        wraps = to_device or func not in (aten._to_copy.default, aten._local_scalar_dense.default)
        result = tree_map_only(Tensor, lambda leaf: known.get(id(leaf), CudaTensor(leaf) if wraps else leaf), result)
        self._launched(func, args, kwargs, given, result)
        if self.waits.total() != num_waits:
            self.streams.current().synchronize()
        return result

    def _check(self, func: Any, args: Any, kwargs: dict[str, Any], given: list[Tensor]) -> None:
        """Raise for tensors of two devices, and count what waits."""
        if any(tensor.dim() and not isinstance(tensor, CudaTensor) for tensor in given) and func.namespace != "c10d":
            raise RuntimeError(f"{func}: Expected all tensors to be on the same device")
        if "set_" in (name := func._schema.name.rpartition(":")[2]) or name == "resize_":
            raise NotImplementedError(f"FakeCuda has no {name}")
        if func in WAITS:
            name, times = WAITS[func]
            self.waits[name] += times
        elif func is aten.repeat_interleave.Tensor and kwargs.get("output_size") is None:
            self.waits["repeat_interleave"] += 1
        elif func in INDEXED:
            masks = [mask for mask in args[1] if mask is not None and mask.dtype in (torch.bool, torch.uint8)]
            fills = func is not aten.index.Tensor and args[2].numel() == 1 and len(masks) == len(args[1])
            if masks and not fills:
                self.waits["mask"] += 1

    def _copied(self, func: Any, args: Any, kwargs: dict[str, Any], from_device: bool, to_device: bool) -> None:
        """Count a copy between the devices if it blocks, and raise if it cannot be asynchronous as it is asked to."""
        source, host = args[0], args[0]
        if func is aten.copy_.default:
            source = args[1]
            from_device, to_device = isinstance(source, CudaTensor), isinstance(args[0], CudaTensor)
            host = source if to_device else args[0]
        if from_device == to_device:
            return
        if not (kwargs.get("non_blocking") or (func is aten.copy_.default and len(args) > 2 and args[2])):
            self.waits["cpu" if from_device else "copy"] += 1
        elif func is aten._to_copy.default and from_device:
            raise RuntimeError("a copy to the host with non_blocking goes to memory that is not pinned")
        elif not self.is_pinned(host):
            raise RuntimeError("a copy with non_blocking of host memory that is not pinned")

    def _launched(self, func: Any, args: Any, kwargs: Any, given: list[Tensor], result: Any) -> None:
        """Count a launch, and let the streams check it."""
        written = [
            value
            for number, argument in enumerate(func._schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
            for value in _leaves(args[number] if number < len(args) else kwargs.get(argument.name))
        ]
        memory = {tensor.untyped_storage()._cdata for tensor in given}
        made = [tensor for tensor in _leaves(result) if tensor.untyped_storage()._cdata not in memory]
        if func.namespace == "c10d":
            self.launches["collective"] += 1
            self.streams.launch(func, [], given)
        elif written or (made and func._schema.name.rpartition(":")[2] not in ALLOCATES):
            self.launches["operator"] += 1
            self.streams.launch(func, [arg for arg in given if id(arg) not in set(map(id, written))], [*written, *made])

    def _kernel(self, launch: Any, args: Any, kwargs: Any) -> Any:
        given = list(_leaves((args, kwargs)))
        if any(not isinstance(tensor, CudaTensor) for tensor in given):
            raise ValueError("Pointer argument cannot be accessed from Triton (cpu tensor?)")
        self.launches["kernel"] += 1
        cpu_args, cpu_kwargs = tree_map_only(Tensor, on_cpu, (args, kwargs))
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
            before = [tensor.clone() for tensor in _leaves((cpu_args, cpu_kwargs))]
            launch(*cpu_args, **cpu_kwargs)
            changed = [
                not torch.equal(_bits(old), _bits(new)) for old, new in zip(before, _leaves((cpu_args, cpu_kwargs)))
            ]
        name = args[0].fn.__name__
        self.streams.launch(
            name,
            [tensor for tensor, is_new in zip(given, changed) if not is_new],
            [tensor for tensor, is_new in zip(given, changed) if is_new],
        )


def _groups(lists: list[list[Tensor]], with_indices: bool = False) -> dict[Any, Any]:
    """What optimizers group their tensors with, by the device that the tensors say."""
    groups = _group_tensors_by_device_and_dtype(lists, with_indices)
    of_lists = (
        (next(x for some in group[0] for x in some if x is not None), key, group) for key, group in groups.items()
    )
    return {(tensor.device, key[1]): group for tensor, key, group in of_lists}


def _leaves(tree: Any) -> Iterator[Tensor]:
    return (leaf for leaf in tree_iter(tree) if isinstance(leaf, Tensor))


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(torch.uint8) if tensor.dim() else tensor.reshape(1).view(torch.uint8)


class _Methods(TorchFunctionMode):
    """The methods of tensors in which torch looks at the device itself, and finds that of the CPU."""

    def __init__(self, cuda: FakeCuda):
        super().__init__()
        self._cuda = cuda

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, cuda = dict(kwargs or {}), self._cuda
        if func in (torch.tensor, torch.as_tensor) and torch.device(kwargs.get("device") or "cpu").type == "cuda":
            device = kwargs.pop("device")
            return func(*args, **kwargs).to(device)
        if not args or not isinstance(args[0], Tensor):
            return func(*args, **kwargs)
        tensor = args[0]
        if func is Tensor.pin_memory:
            return cuda.pin(tensor.clone())
        if func is Tensor.is_pinned:
            return cuda.is_pinned(tensor)
        if func in (Tensor.numpy, Tensor.tolist, Tensor.__array__):
            if not isinstance(tensor, CudaTensor):
                cuda.streams.host_reads([tensor])
            elif func is Tensor.tolist:
                return _ToHost.apply(tensor.detach(), cuda, False).tolist()
            else:
                raise TypeError("can't convert cuda:0 device type tensor to numpy")
        if isinstance(tensor, CudaTensor) and func in (Tensor.cpu, Tensor.to):
            device, rest = (HOST, ()) if func is Tensor.cpu else (kwargs.pop("device", None), args[1:])
            if device is None and rest and isinstance(rest[0], (str, torch.device)):
                device, rest = rest[0], rest[1:]
            if device is not None and torch.device(device).type == "cpu":
                tensor = _ToHost.apply(tensor, cuda, kwargs.pop("non_blocking", False))
            return tensor.to(*rest, **kwargs) if rest or kwargs.keys() - {"non_blocking"} else tensor
        return func(*args, **kwargs)


class _ToHost(torch.autograd.Function):
    """A copy on the host."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cuda: FakeCuda, non_blocking: bool) -> Tensor:
        with mock.patch.object(cuda, "moves", True):
            return aten._to_copy.default(x, device=HOST, non_blocking=non_blocking)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        return grad.to(DEVICE), None, None
