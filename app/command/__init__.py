"""The `thalweg-server` command."""
