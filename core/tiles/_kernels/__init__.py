"""Compiled parts of the tile engine."""
