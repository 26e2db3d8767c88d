"""Views of datasets, read in tiles."""
