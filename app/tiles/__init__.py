"""Views of datasets: planned, read, streamed and reduced tile by tile."""
