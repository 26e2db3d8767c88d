"""What clients watch of a run: the rows of its streams, and its progress."""
