"""Loops of portfolio analytics."""
