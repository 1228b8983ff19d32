"""What a run will cost before it is made: profiles of hardware, predictions from them, and the choice that follows."""
