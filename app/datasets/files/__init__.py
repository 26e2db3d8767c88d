"""Bytes of datasets' files: which may be read, how, and whether they changed."""
