"""Loss sets, and questions about them."""
