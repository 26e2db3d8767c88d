"""Sealing of runs: checks, jobs, and the worker that does them."""
