"""Pipelines and their batches."""
