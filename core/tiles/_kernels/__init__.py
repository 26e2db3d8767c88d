"""Numba kernels of the tile engine."""
