"""Dataset tiles: which bytes of which files make a tile, and how they become values."""
