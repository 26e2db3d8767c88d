"""Where heavy work runs."""
