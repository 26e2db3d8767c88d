"""The ``thalweg`` command."""
