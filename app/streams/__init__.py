"""Resumable answers: frames, and the driver that sends them."""
