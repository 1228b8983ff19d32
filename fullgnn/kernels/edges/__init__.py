"""Operations on the edges of a block: attention, products with values per edge, softmax and reductions of messages."""
