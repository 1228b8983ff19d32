"""The memory that recorded launches use: where each tensor lies, and what a capture has overwritten."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_map_only


@dataclass(frozen=True)
class Address:
    """Where a strided tensor lies. Like the address in a launch, it does not follow the tensor elsewhere."""

    memory: torch.UntypedStorage | StorageWeakRef
    kind: type[Tensor]  # the class of the tensor: torch's, or that of a fake device
    dtype: torch.dtype
    offset: int
    size: torch.Size
    stride: tuple[int, ...]

    def tensor(self) -> Tensor:
        """A tensor at this address.

        Raises:
            ReferenceError: the memory has been freed.
        """
        memory = self.memory
        if isinstance(memory, StorageWeakRef):
            memory = torch.UntypedStorage._new_with_weak_ptr(memory.cdata)
            if memory is None:
                raise ReferenceError("the memory has been freed")
        with torch._C._DisableTorchDispatch():
            tensor = torch.empty(0, dtype=self.dtype).set_(memory, self.offset, self.size, self.stride)
        return tensor if self.kind is Tensor else self.kind(tensor)


class Memory:
    """The memory of one capture: it belongs to the capture, which holds it, or comes from outside."""

    def __init__(self) -> None:
        self._own: dict[int, torch.UntypedStorage] = {}
        self._before: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}

    def add(self, tensors: list[Tensor]) -> None:
        """``tensors`` have been allocated in the capture."""
        for storage in _storages(tensors):
            self._own[storage._cdata] = storage

    def share(self, tensor: Tensor, others: list[Tensor]) -> bool:
        """Whether ``tensor`` lies in the memory of one of ``others``."""
        mine = {storage._cdata for storage in _storages([tensor])}
        return any(storage._cdata in mine for storage in _storages(others))

    def save(self, tensors: list[Tensor]) -> None:
        """Keep the values of the memory of ``tensors`` that comes from outside: they are about to be overwritten."""
        for storage in _storages(tensors):
            if storage._cdata not in self._own and storage._cdata not in self._before:
                with torch._C._DisableTorchDispatch():
                    self._before[storage._cdata] = storage, storage.clone()

    def restore(self) -> None:
        """Write the saved values back."""
        for storage, values in self._before.values():
            storage.copy_(values)

    def addresses(self, tree: Any) -> Any:
        """``tree`` with the address of each strided tensor in place of the tensor."""
        return tree_map_only(Tensor, self._address, tree)

    def _address(self, tensor: Tensor) -> Any:
        if tensor.layout != torch.strided:
            return tensor.detach()
        storage = tensor.untyped_storage()
        own = self._own.get(storage._cdata)
        memory = StorageWeakRef(storage) if own is None else own
        kind = Tensor if type(tensor) is torch.nn.Parameter else type(tensor)
        return Address(memory, kind, tensor.dtype, tensor.storage_offset(), tensor.size(), tensor.stride())


def _storages(tensors: list[Tensor]) -> list[torch.UntypedStorage]:
    return [tensor.untyped_storage() for tensor in tensors if tensor.layout == torch.strided]
