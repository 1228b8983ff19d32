"""Products of tall dense matrices and their gradients, with epilogues; matrices whose rows stay on the host."""
