"""The ``thalweg-server`` command."""
