"""Iteration in exact, resumable steps."""
