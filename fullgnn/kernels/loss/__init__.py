"""The loss and its gradient in one pass."""
