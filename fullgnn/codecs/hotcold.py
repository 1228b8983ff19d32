"""Two codecs: a finer one for the nodes that are read most often, and a coarser one for the others.

Which nodes are hot is a matter of the graph: those that most nodes read, as in the cache of PaGraph. F2CGT (PVLDB 2024)
keeps features in two sizes in this way. The finer rows of hot nodes are on the device of every rank, so that only a
pointer to them travels.

A row has a byte that is 1 for a hot node. Behind it lies the coarse code, or the number of the finer row in 4 bytes.
"""

from typing import cast

import numpy as np
import torch
from torch import Tensor

from fullgnn.codecs.codec import Learning, check_key
from fullgnn.codecs.encoded import has_state
from fullgnn.codecs.features import Features
from fullgnn.codecs.kinds import make
from fullgnn.errors import UnsupportedError

POINTER_BYTES = 4
HOT_ROWS = "_hot_rows"  # name in the state


class HotCold:
    """A finer codec for hot nodes, see the head of this file.

    Args:
        hot, cold: name and keys of the codecs, as in ``scalar bits=4``.
        hot_share: of the nodes, from 0 to 1.

    Raises:
        ConfigError: the share is out of range, or there is no such codec.
    """

    reads_graph = True

    def __init__(self, hot: str, cold: str, hot_share: float):
        check_key("codec.hot_share", hot_share, 0 <= hot_share <= 1, "0 to 1")
        self.hot_share = hot_share
        self._codecs = {"hot": make("codec.hot", hot), "cold": make("codec.cold", cold)}

    def learn(self, features: Features) -> None:
        """See ``Learning``: both codecs learn from all nodes."""
        for codec in self._codecs.values():
            if hasattr(codec, "learn"):
                cast(Learning, codec).learn(features)
        self._like = self._codecs["cold"].encode(features[:1])[:0]
        self.refresh(features)

    def refresh(self, features: Features) -> None:
        """See ``fullgnn.codecs.codec``: choose the hot nodes, and encode their finer rows."""
        if features.graph is None:
            raise UnsupportedError("codec=hotcold chooses nodes by how many read them, and no graph is known here")
        reads = np.bincount(features.graph.indices, minlength=features.num_nodes)
        count = round(self.hot_share * features.num_nodes)
        self._nodes = np.sort(np.argsort(-reads, kind="stable")[:count])
        step = max(1, features.slices()[0].stop) if features.num_nodes else 1
        hot = self._codecs["hot"]
        pieces = [hot.encode(features[self._nodes[first : first + step]]) for first in range(0, count, step)]
        rows = np.concatenate(pieces or [hot.encode(features[:1])[:0]])
        self._hot_rows = torch.from_numpy(np.ascontiguousarray(rows))

    def encode_nodes(self, first: int, features: np.ndarray) -> np.ndarray:
        """See ``fullgnn.codecs.codec``: (m, 1 + W) uint8."""
        cold = np.ascontiguousarray(self._codecs["cold"].encode(features)).view(np.uint8)
        rows = np.zeros((len(features), 1 + max(POINTER_BYTES, cold.shape[1])), np.uint8)
        rows[:, 1 : 1 + cold.shape[1]] = cold
        begin, end = np.searchsorted(self._nodes, [first, first + len(features)])
        here = self._nodes[begin:end] - first
        rows[here, 0] = 1
        rows[here, 1 : 1 + POINTER_BYTES] = np.arange(begin, end, dtype=np.int32)[:, None].view(np.uint8)
        return rows

    def encode(self, features: np.ndarray) -> np.ndarray:
        """The rows of the first nodes, see ``encode_nodes``."""
        return self.encode_nodes(0, features)

    def decode(self, rows: Tensor, dtype: torch.dtype) -> Tensor:
        """See ``Codec``."""
        codes = rows[:, 1 : 1 + self._like.shape[1] * self._like.itemsize].clone()
        codes.masked_fill_(rows[:, :1] > 0, 0)  # a pointer is no code: what it would decode to may lie outside of a row
        decoded = self._codecs["cold"].decode(codes.view(torch.from_numpy(self._like).dtype), dtype)
        hot = rows[:, 0].nonzero()[:, 0]
        if len(hot):
            pointer = rows[hot, 1 : 1 + POINTER_BYTES].contiguous().view(torch.int32)[:, 0].long()
            decoded[hot] = self._codecs["hot"].decode(self._hot_rows.index_select(0, pointer), dtype)
        return decoded

    def state(self) -> dict[str, np.ndarray]:
        """See ``Learning``: those of both codecs, and the finer rows."""
        learnt = {
            f"{which}.{name}": array
            for which, codec in self._codecs.items()
            if has_state(codec)
            for name, array in cast(Learning, codec).state().items()
        }
        return {"like": self._like, HOT_ROWS: self._hot_rows.numpy(), **learnt}

    def load_state(self, tensors: dict[str, Tensor]) -> None:
        """See ``Learning``."""
        self._like = tensors["like"].cpu().numpy()
        if HOT_ROWS in tensors:
            self._hot_rows = tensors[HOT_ROWS]
        for which, codec in self._codecs.items():
            if has_state(codec):
                own = {name.partition(".")[2]: value for name, value in tensors.items() if name.startswith(f"{which}.")}
                cast(Learning, codec).load_state(own)
