"""Calls of the sampler on a GPU, and of the codec whose rows a GPU decodes."""

from collections.abc import Iterator
from functools import partial
from unittest import mock

import numpy as np
import torch

from fullgnn.codecs.topk import TopK
from fullgnn.sampling.gpu_neighbors import GpuNeighborSampler
from fullgnn.sampling.neighbors import NeighborSampler
from tests.gpu_code.cases import Case

NODES, DEGREE = 1000, 16


def sampler_cases() -> Iterator[Case]:
    """One hop each: of many targets and of one, with fan-outs of one and of more than a group of random words."""
    graph = np.arange(NODES + 1, dtype=np.int64) * DEGREE, np.arange(NODES * DEGREE, dtype=np.int32) % NODES
    for fanout, replace, num_targets in ((10, False, 300), (1, False, 1), (5, True, 300)):
        sampler = NeighborSampler(*graph, [fanout], replace=replace)
        name = f"{fanout} of each of {num_targets}{' with replacement' if replace else ''}"
        yield Case("sampler", name, partial(_draw, sampler, num_targets))


def _draw(sampler: NeighborSampler, num_targets: int) -> None:
    """A batch in which no kernel counts anything, since none is launched: what they would have written is 0."""
    with mock.patch.object(torch, "empty_like", torch.zeros_like):
        GpuNeighborSampler(sampler, torch.device("cpu")).sample(np.arange(num_targets), 2**32 + 1)


def codec_cases() -> Iterator[Case]:
    """Rows of every dtype, and as wide as one, two and several groups."""
    for width, dtype in ((128, torch.float32), (602, torch.float32), (41, torch.float64), (768, torch.bfloat16)):
        codec = TopK(8)
        codes = codec.encode(np.zeros((20, width), np.float32))
        state = {"codebook": torch.zeros(codes.shape[1]), "num_columns": torch.tensor(width)}
        codec.load_state(state)
        for index in (torch.arange(20), torch.arange(21)[1:], torch.tensor([3])):
            call = partial(codec.decode_rows, torch.from_numpy(codes), index, dtype)
            yield Case("codec", f"{width} {str(dtype).removeprefix('torch.')}", call)
