"""The engine: bytes in, events out. No HTTP, no files, no clock, no event loop."""
