"""infinibatch: drop-in replacements for its modules ``iterators`` and ``datasets``."""
