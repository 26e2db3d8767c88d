"""Loss sets, kept independently of their runs, and what is asked of them."""
