"""Makes the batches of an epoch on one rank: sampled, with the features of their inputs, as blocks on the device.

    host      cache       which rows of features stay on the device in this epoch
              sample      the rank's training nodes of the batch, and their hops
              gather      the features of the outermost hop's sources, those that are not cached on the device
    device    load        the features, and one ``Block`` for each layer

Nothing is gathered where the first layer reads the features on the host (``features.InPlace``).

With ``sample_on_gpu`` the hops are drawn on the device, and the host waits once for their sizes. It still gathers, and
waits once more for the ids of the inputs, unless the device holds the features of all nodes that the rank may read.
With ``loader.split=pagraph`` it waits for the ids in any case, to check that they are those of its part.

A cache of automatic size takes what the first batch of the run leaves of the device, as in PaGraph (Lin et al., SoCC
2020): that batch is made without it, and the rows are filled in before the second one. Workers make no batch ahead of
that, so that all batches of theirs know the same rows.

With ``num_workers``, other processes draw and gather ahead (``workers.py``), and the rank waits for them. On a
GPU features and blocks travel from page-locked memory on a stream of their own, while the batch before is computed
(``transfer.py``); a slot of a worker is written again when the event behind its copy has come.
"""

import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from fullgnn.distributed import all_gather_objects, on_every_rank
from fullgnn.errors import UnsupportedError
from fullgnn.sampling.blocks import BlockMaker
from fullgnn.sampling.features import Cached, FeatureSource, InPlace
from fullgnn.sampling.precompute import Precomputed
from fullgnn.sampling.sample import BatchSampler, Sample
from fullgnn.sampling.transfer import Packet, Transfer
from fullgnn.sampling.workers import Piece, Workers
from fullgnn.schemes.block import Block
from fullgnn.schemes.inputs import Input
from fullgnn.telemetry.machine import left_bytes
from fullgnn.telemetry.meter import Meter
from fullgnn.telemetry.screen import num_bytes

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Minibatch:
    """What the model reads of a batch on one rank, on its device."""

    x: Input  # (num_inputs, num_features)
    blocks: list[Block]  # the first layer's first
    targets: Tensor  # of the rank's training nodes, see ``Task.targets``
    total: float  # of the whole batch, over all ranks; see ``NodeTask.total``

    def tensors(self) -> list[Tensor]:
        """The tensors it holds, for counting memory."""
        inputs = [self.x] if isinstance(self.x, Tensor) else self.x.tensors()
        return [*inputs, self.targets, *(tensor for block in self.blocks for tensor in block.tensors())]


class Loader:
    """The batches of one rank.

    Args:
        workers: make the samples ahead; None: this process makes them, each when it is asked for.
        precomputed: what the rows of features hold; None: the features.
        num_sharing: ``World.ranks_per_device``.
    """

    def __init__(
        self,
        sampler: BatchSampler,
        features: FeatureSource,
        maker: BlockMaker,
        meter: Meter,
        workers: Workers | None = None,
        precomputed: Precomputed | None = None,
        num_sharing: int = 1,
    ):
        self.device, self.num_batches, self.num_parts = maker.device, sampler.num_batches, sampler.num_parts
        self.sampler, self.features, self._maker, self._meter = sampler, features, maker, meter
        self._precomputed, self._num_sharing = precomputed, num_sharing
        self.is_new = True
        """Whether no batch has told ``trained`` its peak since the loader keeps what it keeps on the device."""
        self.transfer = Transfer(maker.device)
        self.arrivals = None if workers is None else Arrivals(workers, self.transfer, meter)

    def epoch(self, epoch: int, first: int = 0) -> Iterator[Minibatch]:
        """The batches of ``epoch``, from the one with the number ``first`` on. A batch is valid until the next one.

        Raises:
            FullGNNError: a worker has ended.
        """
        while first < self.num_batches:
            stop = self.num_batches
            if self.features.waits:
                stop = first + 1
            elif isinstance(self.features, Cached):
                with self._meter.clock("cache"):
                    filled = on_every_rank(partial(self.features.begin, epoch))
                self._meter.count("filled_bytes", filled * self.features.row_bytes)
            yield from self._batches(epoch, first, stop)
            first = stop

    def trained(self, peak_bytes: int) -> None:
        """Hear what the tensors of a rank took at most so far, in a batch. Every rank calls it, while ``is_new``."""
        self.is_new = self.features.waits
        if not self.is_new:
            return
        assert isinstance(self.features, Cached)
        left = on_every_rank(partial(left_bytes, self.device, self._num_sharing, peak_bytes))
        rooms = all_gather_objects(self.features.take(left))
        sizes = [
            f"{room} rows of features ({num_bytes(room * self.features.row_bytes)})"
            for room in dict.fromkeys((min(rooms), max(rooms)))
        ]
        log.info(
            "cache.megabytes=null: beside what a batch takes, and the reserve, the device of a rank has room for %s",
            " to ".join(sizes),
        )

    def _batches(self, epoch: int, first: int, stop: int) -> Iterator[Minibatch]:
        if self.arrivals is None:
            made = self._here(epoch, first, stop)
        else:
            made = self.arrivals.epoch(epoch, first, stop)
        for sample, rows in made:
            self._meter.count("sampled_edges", sample.num_edges)
            self._meter.count("input_rows", sample.num_inputs)
            num_read = self.features.num_read(sample.num_inputs, rows)
            self._meter.count("fetched_bytes", num_read * self.features.row_bytes)
            self._meter.count("hits", sample.num_inputs - num_read)
            with self._meter.clock("load"):
                batch = self._load(sample, rows)
            yield batch

    def tensors(self) -> list[Tensor]:
        """The tensors that it keeps on the device from batch to batch, for counting memory."""
        return self.features.tensors()

    def close(self) -> None:
        """End the workers. It may be called twice."""
        arrivals, self.arrivals = self.arrivals, None
        if arrivals is not None:
            arrivals.close()

    def _here(self, epoch: int, first: int, stop: int) -> Iterator[tuple[Sample, Tensor]]:
        for number in range(first, stop):
            with self._meter.clock("sample"):
                sample = self.sampler.sample(epoch, number)
            with self._meter.clock("gather"):
                ids = self._ids(sample)
                missing = self.features.missing(ids) if isinstance(ids, np.ndarray) else np.empty(0, np.int64)
                rows = self.features.gather(missing)
                rows = self.transfer.moved(rows)
            yield sample, rows

    def _load(self, sample: Sample, rows: Tensor) -> Minibatch:
        packet = Packet(self.transfer)
        blocks = self._maker.blocks(sample.hops, sample.targets, packet.put)
        targets = packet.put(self.sampler.labels[torch.from_numpy(sample.targets)])
        packet.send()
        return Minibatch(self._input(sample, rows, blocks), blocks, targets, sample.total)

    def _input(self, sample: Sample, rows: Tensor, blocks: list[Block]) -> Input:
        if isinstance(self.features, InPlace):
            return self.features.input(sample.inputs)
        x = self.features.place(self._ids(sample), rows)
        return x if self._precomputed is None else self._precomputed.input(blocks[0], x)

    def _ids(self, sample: Sample) -> np.ndarray | Tensor:
        """The inputs of ``sample``: on the device where they were drawn there, and so are the features; else on the
        host, which waits for them if they were drawn on the device."""
        nodes = sample.inputs_where_drawn
        return nodes if isinstance(nodes, Tensor) and self.features.has_all else sample.inputs


class Arrivals:
    """Takes the batches of the workers, in order."""

    def __init__(self, workers: Workers, transfer: Transfer, meter: Meter):
        self.workers, self.transfer, self._meter = workers, transfer, meter
        self.copying: deque[tuple[torch.cuda.Event, Piece]] = deque()
        """Pieces whose slots a GPU may still be reading, in the order of their copies."""
        self._copies = transfer.stream is not None
        if self._copies:
            for address, size in workers.memory():
                lock_pages(address, size)

    def epoch(self, epoch: int, first: int, stop: int) -> Iterator[tuple[Sample, Tensor]]:
        """The samples and fetched rows of the batches ``first`` to ``stop``, each valid until the next one."""
        self.workers.begin(epoch, first, stop)
        for number in range(first, stop):
            piece = self.next_number(number)
            assert piece.targets is not None
            hops = self.workers.hops(piece)
            whole = piece.stop == piece.num_rows
            if whole and not self._copies:
                rows = torch.from_numpy(self.workers.features(piece))
            else:
                hops = [hop.copy() for hop in hops]  # so that their slot is free for another piece
                rows = self._joined(piece)
            try:
                yield Sample(piece.targets, hops, piece.total), rows
            finally:  # also where nobody asks for the next batch
                if whole and not self._copies:
                    self.workers.release(piece)

    def close(self) -> None:
        """End the workers."""
        if self.transfer.stream is not None:
            self.transfer.stream.synchronize()
            for address, _ in self.workers.memory():
                torch.cuda.cudart().cudaHostUnregister(address)
        self.workers.close()

    def next_number(self, number: int) -> Piece:
        with self._meter.clock("wait"):
            # Every slot whose copy is done is free again, and the next one too while the worker waits for it.
            while self.copying and (self.copying[0][0].query() or not self.workers.has_piece(number)):
                event, copied = self.copying.popleft()
                event.synchronize()
                self.workers.release(copied)
            piece = self.workers.next_piece(number)
        for step, seconds in piece.time_s.items():
            self._meter.spent(step, seconds)
        return piece

    def _joined(self, piece: Piece) -> Tensor:
        """The fetched rows of a batch on the device, from all of its pieces, beginning with ``piece``."""
        rows = torch.from_numpy(self.workers.features(piece))
        x = self.transfer.empty((piece.num_rows, rows.shape[1]), rows.dtype)
        self._copy(rows, x[: piece.stop], piece)
        while piece.stop < piece.num_rows:
            piece = self.next_number(piece.number)
            rows = torch.from_numpy(self.workers.features(piece))
            self._copy(rows, x[piece.first : piece.stop], piece)
        self.transfer.arrived(x)
        return x

    def _copy(self, rows: Tensor, target: Tensor, piece: Piece) -> None:
        """Copy ``rows`` of ``piece`` to ``target``, and release its slot when that is done."""
        self.transfer.copy(rows, target)
        if self.transfer.stream is None:
            self.workers.release(piece)
        else:
            self.copying.append((self.transfer.stream.record_event(), piece))


def lock_pages(address: int, size: int) -> None:
    """Lock memory that this process has mapped, so that a GPU copies from it without the host.

    Raises:
        UnsupportedError: the system does not lock so much memory.
    """
    status = torch.cuda.cudart().cudaHostRegister(address, size, 0)
    if int(status) != 0:
        raise UnsupportedError(
            f"the system does not lock {size / 1e6:.0f} MB of memory (CUDA error {int(status)}): lower"
            " loader.slot_megabytes, or set loader.num_workers=0"
        )
