"""The loss and its gradient, computed in one pass over the logits."""
