"""Iteration in exact, resumable steps: stages, and what runs over them."""
