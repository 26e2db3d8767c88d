"""Event reports from loss streams."""
