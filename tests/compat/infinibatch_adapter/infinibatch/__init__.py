"""infinibatch as its own tests import it, made of our iterators."""
