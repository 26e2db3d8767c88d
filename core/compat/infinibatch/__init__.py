"""infinibatch's modules under its names: ``iterators`` and ``datasets``."""
