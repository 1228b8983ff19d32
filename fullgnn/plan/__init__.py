"""What a run will cost before it is made: the hardware, and the predictions from it."""
