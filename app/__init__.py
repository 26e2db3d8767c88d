"""The application around the engine: command line, files and, in time, HTTP."""

__version__ = "0.1.0"
