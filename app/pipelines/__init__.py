"""Pipelines over datasets, served batch by batch."""
