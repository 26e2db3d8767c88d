"""Datasets: the catalogue, their files and their items."""
