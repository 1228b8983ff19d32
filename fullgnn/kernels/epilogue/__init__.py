"""The epilogue of a product: scale, bias, ReLU and dropout, fused into the kernel of the product."""
