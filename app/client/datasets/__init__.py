"""The catalogue of datasets."""
