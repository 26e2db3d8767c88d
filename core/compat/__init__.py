"""The names and documented behaviour of other iteration libraries, on our stages."""
