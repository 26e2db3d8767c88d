"""Oasis: run directories, the runner and the executables that models call."""
