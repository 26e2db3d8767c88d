"""emloop as its own tests import it, made of our stream wrapper."""
