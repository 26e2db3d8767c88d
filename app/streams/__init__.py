"""Resumable answers: their frames, and the driver that sends them."""
