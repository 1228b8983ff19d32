"""Scale and add in one pass against torch."""

import pytest
import torch

from fullgnn.kernels.dense.scale_add import scale_and_add_


@pytest.mark.parametrize("shape", [(0, 3), (7, 1), (50, 64), (3000, 33)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("scaled", [False, True])
def test_scale_and_add(shape: tuple[int, int], dtype: torch.dtype, scaled: bool) -> None:
    z, x = torch.randn(shape).to(dtype), torch.randn(shape).to(dtype)
    scale = torch.rand(len(z)).to(dtype) if scaled else None
    exact = 0.25 * ((z.double() if scale is None else z.double() * scale.double()[:, None]) + x.double())
    result = scale_and_add_(z, scale, x, 0.25)
    assert result is z
    tolerance = {torch.float32: 1e-6, torch.float64: 1e-15, torch.bfloat16: 2e-2}[dtype]
    torch.testing.assert_close(result.double(), exact, rtol=tolerance, atol=tolerance)
    wide = torch.randn(shape[0], shape[1] + 2, dtype=torch.float32)
    part, before = wide[:, :-2], wide[:, :-2].clone()
    torch.testing.assert_close(scale_and_add_(part, None, before), 2 * before)
