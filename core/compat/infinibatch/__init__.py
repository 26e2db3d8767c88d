"""infinibatch's modules ``iterators`` and ``datasets``."""
