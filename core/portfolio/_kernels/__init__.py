"""Loops over the rows of loss sets."""
