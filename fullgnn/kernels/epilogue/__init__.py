"""What a product ends with: scale, bias, ReLU and dropout, fused into the kernel that makes it."""
