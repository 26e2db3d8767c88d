"""Pipelines by part: options and order of stages, bounds, building, stepping."""
