"""Threads and buffers: where heavy work runs."""
