"""The tile engine: locates the bytes of a tile in files and turns them into values."""
