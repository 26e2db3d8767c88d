"""The HTTP side: routes, what goes in and out of them, and who may come in."""
