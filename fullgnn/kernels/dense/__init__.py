"""Products of tall dense matrices and their gradients, with epilogues; rows that stay on the host."""
