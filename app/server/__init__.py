"""The HTTP server: a protocol that reads bodies straight into buffers, limits and draining."""
