"""Files that ``thalweg-server oasis runner`` writes into the package of a model."""
