"""What is computed from the streams of a run, and published as files."""
