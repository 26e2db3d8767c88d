"""Readiness: what a worker finds out about itself, and what all of them say together."""
