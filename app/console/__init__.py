"""The console: pages by which people look at what the service has, and try it."""
