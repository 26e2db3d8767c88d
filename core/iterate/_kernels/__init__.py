"""Numba kernels of the stages: the loops that numpy cannot vectorise."""
