"""Datasets: the catalogue, what each is made of, and its open files."""
