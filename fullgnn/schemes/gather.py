"""Gather rows of all nodes: on one rank, or column by column on all ranks."""

import itertools
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch
from torch import Tensor

from fullgnn.distributed import Axis, World, receive_arrays, send_arrays

PART_BYTES = 1 << 25
"""Bytes of a part of rows that travels at once."""

_LAST = "is the last part"


class GathersRows:
    """The methods of ``Scheme`` that gather rows. A scheme derives from it and sets the attributes in ``shard``."""

    world: World
    all_ranks: Axis
    node_id: Tensor  # (num_local_nodes,) int64, original ids of this rank's rows
    num_nodes: int  # GLOBAL
    copies = 1  # how many consecutive ranks hold the same rows; only the first of them sends

    def gather(self, rows: Tensor) -> Tensor | None:
        """See ``Scheme.gather``."""
        out = None if self.world.rank else torch.empty((self.num_nodes, *rows.shape[1:]), dtype=rows.dtype)
        for part in self.gather_parts({"rows": rows}):
            assert out is not None
            out.numpy()[part["node_id"]] = part["rows"]
        return out

    def gather_parts(self, rows: Mapping[str, Tensor]) -> Iterator[dict[str, np.ndarray]]:
        """See ``Scheme.gather_parts``."""
        sources = range(0, self.world.size, self.copies)
        if self.world.rank not in sources:
            return
        bytes_of_row = 8 + sum(tensor[:1].nbytes for tensor in rows.values())
        per_part = max(1, PART_BYTES // bytes_of_row)
        starts = range(0, max(1, len(self.node_id)), per_part)
        for start in starts:
            some = slice(start, start + per_part)
            part = {name: tensor[some].detach().cpu().numpy() for name, tensor in rows.items()}
            part["node_id"] = self.node_id[some].cpu().numpy()
            if self.world.rank == 0:
                yield part
            else:
                send_arrays(part | {_LAST: np.array(start == starts[-1])}, 0)
        for source in sources[1:] if self.world.rank == 0 and not self.world.dry else ():
            last = False
            while not last:
                part = receive_arrays(source)
                last = bool(part.pop(_LAST))
                yield part

    def of_columns(self, rows: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
        """See ``Scheme.of_columns``. Each rank computes an equal part of the columns."""
        if self.world.dry:
            return compute(rows).double().cpu()
        ranks, num_columns = self.all_ranks, rows.shape[1]
        if ranks.index % self.copies:
            rows = rows[:0]
        bounds = [num_columns * index // ranks.size for index in range(ranks.size + 1)]
        parts = [rows[:, first:last].contiguous() for first, last in itertools.pairwise(bounds)]
        numbers = torch.zeros(num_columns, dtype=torch.float64)
        own = slice(bounds[ranks.index], bounds[ranks.index + 1])
        numbers[own] = compute(torch.cat(ranks.all_to_all(parts, "metrics"))).double().cpu()
        return ranks.all_reduce(numbers)  # each number has one addend that is not 0
