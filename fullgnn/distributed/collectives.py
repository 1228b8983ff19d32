"""The one place that moves data between ranks.

``Axis`` wraps the process group of one mesh axis: it moves device tensors in every epoch, times them and counts bytes.
The functions below ``Axis`` move host objects over gloo, on all ranks, during preparation and reporting. They wait for
ranks that are busy for as long as these work, see ``presence.py``.

Bytes are counted where they arrive, so that a sum over ranks counts no transfer twice: a broadcast counts its whole
tensor on every rank but the source; an exchange counts the tensors that it receives; an all-reduce over g ranks counts
2 (g-1)/g of its tensor on each, the volume of the ring algorithm. On one rank every collective returns its input and
counts nothing.
"""

import pickle
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from fullgnn.distributed.presence import present
from fullgnn.errors import FullGNNError, UnsupportedError
from fullgnn.telemetry.machine import within_memory
from fullgnn.telemetry.meter import Meter

T = TypeVar("T")

_CHUNK_BYTES = 1 << 28

NOT_WITHOUT_OTHERS = (
    "a dry run does not know what the other ranks ask for at run time (block.fetch_rows): leave out runtime.dry_run"
)


class Work:
    """A transfer in progress. ``wait`` returns its tensor once the tensor may be read on the current stream.

    The meter's phase ``comm`` is the time spent in ``wait``. For a tensor that arrives, ``flight`` is the time from the
    start of the transfer to the end of ``wait``, and ``late`` is the time of ``wait`` alone: 1 - late/flight is the
    fraction that other work has hidden.
    """

    def __init__(
        self, tensor: Tensor, work: dist.Work | None, meter: Meter, arrives: bool = True, host: Tensor | None = None
    ):
        self._tensor, self._work, self._meter, self._arrives = tensor, work, meter, arrives
        self._host = host  # the host tensor that travels instead of ``tensor``; None: ``tensor`` itself travels
        self._flight = meter.start("flight") if work is not None and arrives else None

    def wait(self) -> Tensor:
        """Wait for the transfer and return its tensor."""
        if self._work is None:
            return self._tensor
        late = self._meter.start("late") if self._arrives else None
        with self._meter.phase("comm"):
            self._work.wait()
            if self._host is not None and self._arrives:
                self._tensor.copy_(self._host)
        if late is not None and self._flight is not None:
            late.stop()
            self._flight.stop()
        self._work = None
        return self._tensor


class Axis:
    """Collectives along one mesh axis.

    Args:
        group: the ranks that differ from this one only along the axis; None: there are no others.
        meter: counts the time and the bytes.
    """

    def __init__(self, group: dist.ProcessGroup | None, meter: Meter):
        self.group, self.meter = group, meter
        self.size, self.index = (1, 0) if group is None else (group.size(), group.rank())
        # gloo accepts GPU tensors in some collectives only: messages, and all-to-alls of rows, go through the host.
        self.by_host = "cuda:gloo" in dist.get_backend_config(group)

    def broadcast(self, tensor: Tensor, source: int) -> Work:
        """Start to copy the ``tensor`` of axis index ``source`` into the equally shaped ``tensor`` of the others."""
        if self.size == 1 or tensor.numel() == 0:
            return Work(tensor, None, self.meter)
        if self.index != source:
            self.meter.received("broadcast", tensor.nbytes)
        with self.meter.phase("comm"):
            work = dist.broadcast(tensor, group=self.group, group_src=source, async_op=True)
        return Work(tensor, work, self.meter, arrives=self.index != source)

    def exchange(
        self, sends: list[tuple[Tensor, int]], receives: list[tuple[Tensor, int]], name: str = "exchange"
    ) -> tuple[list[Work], list[Work]]:
        """Start point-to-point sends and receives, each a pair of a contiguous tensor and the peer's axis index.

        Between two ranks, messages arrive in the order in which they were started. Empty tensors are not sent.

        Args:
            name: the name under which the received bytes are counted.

        Returns:
            the sends and the receives in progress, in the given order.
        """
        sent = [(tensor, self._travelling(tensor, filled=True), peer) for tensor, peer in sends]
        received = [(tensor, self._travelling(tensor, filled=False), peer) for tensor, peer in receives]
        operations = [
            dist.P2POp(operation, travelling, group=self.group, group_peer=peer)
            for operation, transfers in ((dist.isend, sent), (dist.irecv, received))
            for tensor, travelling, peer in transfers
            if tensor.numel()
        ]
        for tensor, _ in receives:
            if tensor.numel():
                self.meter.received(name, tensor.nbytes)
        if not operations:
            works = []
        else:
            with self.meter.phase("comm"):
                works = dist.batch_isend_irecv(operations)
        if len(works) != len(operations):  # NCCL: one handle for the whole batch
            works = works * len(operations)
        handles = iter(works)

        def pending(transfers: list[tuple[Tensor, Tensor, int]], arrive: bool) -> list[Work]:
            return [
                Work(
                    tensor,
                    next(handles) if tensor.numel() else None,
                    self.meter,
                    arrive,
                    host=None if travelling is tensor else travelling,
                )
                for tensor, travelling, _ in transfers
            ]

        return pending(sent, arrive=False), pending(received, arrive=True)

    def all_to_all(self, tensors: list[Tensor], name: str, num_rows: list[int] | None = None) -> list[Tensor]:
        """Send ``tensors[i]`` to axis index i, and return what every index sent to this rank, in their order.

        Args:
            tensors: one for each rank of the axis, equal in all but the first dim.
            name: the name under which the received bytes are counted.
            num_rows: the first dim of what each index sends; None: the ranks tell each other.

        Raises:
            UnsupportedError: the ranks cannot tell each other, in a dry run.
        """
        if num_rows is None and in_dry_run():
            raise UnsupportedError(NOT_WITHOUT_OTHERS)
        others = [index for index in range(self.size) if index != self.index]
        if num_rows is None:
            counts = [torch.tensor([len(tensor)], device=tensor.device) for tensor in tensors]
            theirs = [torch.zeros_like(count) for count in counts]
            self._all_pairs(counts, theirs, others, name)
            num_rows = [int(count) for count in theirs]
        own = tensors[self.index]
        received = [own.new_empty(num, *own.shape[1:]) for num in num_rows]
        received[self.index] = own
        self._all_pairs(tensors, received, others, name)
        return received

    def all_to_all_rows(
        self, sent: Tensor, num_sent: list[int], arriving: Tensor, num_arriving: list[int], name: str
    ) -> Work:
        """Start one all-to-all of rows that are packed side by side. Every rank of the axis calls it.

        Args:
            sent: (sum of num_sent, ...), contiguous: the rows for axis index 0, then those for index 1, and so on. They
                must not change before the end of ``wait``.
            num_sent: the number of rows for each axis index.
            arriving: (sum of num_arriving, ...), contiguous, for the rows of each axis index in the same order.
            num_arriving: the number of rows that each axis index sends to this rank.
            name: the name under which the received bytes are counted; rows of this rank itself do not count.

        Returns:
            the transfer of ``arriving`` in progress.
        """
        if arriving.numel():
            own = num_arriving[self.index] * arriving[0].numel() * arriving.itemsize
            self.meter.received(name, arriving.nbytes - own)
        if dist.get_backend(self.group) == "fake":  # its all-to-all is not for ranks that send nothing
            return Work(arriving, None, self.meter)
        out, rows = self._travelling(arriving, filled=False), self._travelling(sent, filled=True)
        with self.meter.phase("comm"):
            work = dist.all_to_all_single(out, rows, num_arriving, num_sent, group=self.group, async_op=True)
        return Work(arriving, work, self.meter, host=None if out is arriving else out)

    def _all_pairs(self, sent: list[Tensor], received: list[Tensor], others: list[int], name: str) -> None:
        sends = [(sent[index].contiguous(), index) for index in others]
        started, arriving = self.exchange(sends, [(received[index], index) for index in others], name)
        for work in (*started, *arriving):
            work.wait()

    def _travelling(self, tensor: Tensor, filled: bool) -> Tensor:
        """``tensor`` itself, or the host tensor that travels instead, with the values of ``tensor`` if ``filled``."""
        if not self.by_host:
            return tensor
        if filled:
            return tensor.to("cpu", copy=True)
        return torch.empty(tensor.shape, dtype=tensor.dtype)

    def all_reduce(self, tensor: Tensor, operation: Literal["sum", "max"] = "sum") -> Tensor:
        """Reduce ``tensor`` elementwise over the ranks of the axis, in place.

        The gradient of a sum over ranks is the same sum.
        """
        if self.size > 1 and tensor.numel():
            self.meter.received("all_reduce", 2 * (self.size - 1) * tensor.nbytes // self.size)
            with self.meter.phase("comm"):
                dist.all_reduce(tensor, dist.ReduceOp.SUM if operation == "sum" else dist.ReduceOp.MAX, self.group)
        return tensor

    def all_gather(self, tensor: Tensor) -> Tensor:
        """Return the ``tensor`` of every rank of the axis, (size, ...), in the order of the ranks.

        It is for small tensors of one shape on every rank. The gradient of ``tensor`` is the sum over the ranks of the
        gradients of its copies.
        """
        if self.size == 1:
            return tensor[None]
        gathered = tensor.new_zeros(self.size, *tensor.shape)  # a dry run leaves zeros in place of other ranks
        if not tensor.numel():
            return gathered
        self.meter.received("gather", (self.size - 1) * tensor.nbytes)
        with self.meter.phase("comm"):
            dist.all_gather(list(gathered.unbind()), tensor.contiguous(), group=self.group)
        return gathered


def from_rank0(compute: Callable[[], T]) -> T | None:
    """Run ``compute`` on rank 0 alone and return its result there, None elsewhere.

    A ``FullGNNError`` from ``compute``, or the one that stands for a ``MemoryError``, is raised on every rank, so that
    no rank keeps waiting. In a dry run, which is a single process, that process calls ``compute`` itself.
    """
    if in_dry_run():
        return compute()
    others = present()
    if others is not None and others.rank != 0:
        error = pickle.loads(bytes.fromhex(others.hear("rank0", 0)))
        if error is not None:
            raise error
        return None
    problem: BaseException | None = ConnectionError("rank 0 has failed")  # a bug, which rank 0 itself shows
    try:
        with within_memory("what rank 0 works on"):
            result = compute()
        problem = None
        return result
    except FullGNNError as error:
        problem = error
        raise
    finally:
        if others is not None:
            others.tell("rank0", pickle.dumps(problem).hex())


def all_ranks_meet() -> None:
    """Wait until every rank calls this, for as long as the others work. Called before a part in which all ranks compute
    and exchange rows, where one may come much later than another."""
    if (others := present()) is not None:
        others.meet()


def on_every_rank(compute: Callable[[], T]) -> T:
    """Run ``compute``, which takes part in no collective, on every rank, and return the result of this rank.

    If it raises a ``FullGNNError`` or a ``MemoryError`` on some ranks, the error of the lowest of them is raised on
    every rank.
    """
    problem: FullGNNError | None = None
    try:
        with within_memory("what this rank works on"):
            result = compute()
    except FullGNNError as error:
        problem = error
    problems = [error for error in all_gather_objects(problem) if error is not None]
    if problems:
        raise problems[0]
    return result


def broadcast_object(value: T | None) -> T:
    """Return rank 0's small, picklable ``value`` on every rank; in a dry run, return ``value`` itself."""
    if in_dry_run():
        assert value is not None
        return value
    if (others := present()) is not None:
        if others.rank == 0:
            others.tell("broadcast")
        else:
            others.hear("broadcast", 0)
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]  # type: ignore[return-value]


def all_gather_objects(value: T) -> list[T]:
    """Return every rank's small, picklable ``value``, in rank order, on every rank; in a dry run, only its own."""
    if in_dry_run():
        return [value]
    all_ranks_meet()
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def sum_of_all(array: np.ndarray) -> np.ndarray:
    """Add up an ``array`` of every rank, on the host; in a dry run, return that of this rank."""
    if in_dry_run():
        return array
    all_ranks_meet()
    total = torch.from_numpy(array.copy())
    dist.all_reduce(total)
    return total.numpy()


def send_arrays(arrays: dict[str, np.ndarray], destination: int) -> None:
    """Send named host arrays of any size and dtype to one rank, which receives them with ``receive_arrays``."""
    if (others := present()) is not None:
        others.tell(f"arrays/{others.rank}/{destination}")
    header = [[(name, array.shape, array.dtype.str) for name, array in arrays.items()]]
    dist.send_object_list(header, dst=destination)
    for array in arrays.values():
        for chunk in _chunks(_bytes(np.require(array, requirements=["C", "W"]))):
            dist.send(chunk, dst=destination)


def receive_arrays(source: int) -> dict[str, np.ndarray]:
    """Receive the arrays that ``source`` sends with ``send_arrays``."""
    if (others := present()) is not None:
        others.hear(f"arrays/{source}/{others.rank}", source)
    header: list[Any] = [None]
    dist.recv_object_list(header, src=source)
    arrays = {}
    for name, shape, dtype in header[0]:
        arrays[name] = np.empty(shape, np.dtype(dtype))
        for chunk in _chunks(_bytes(arrays[name])):
            dist.recv(chunk, src=source)
    return arrays


def in_dry_run() -> bool:
    """Whether this is a dry run without other ranks, see ``dry.py``."""
    return dist.is_initialized() and dist.get_backend() == "fake"


def _bytes(array: np.ndarray) -> Tensor:
    """The memory of a C-contiguous array as a byte tensor, without a copy."""
    return torch.from_numpy(array.reshape(-1).view(np.uint8))


def _chunks(flat: Tensor) -> tuple[Tensor, ...]:
    """Split ``flat`` into pieces below gloo's limit of 2 GiB for one message; an empty tensor has no piece."""
    return flat.split(_CHUNK_BYTES) if flat.numel() else ()
