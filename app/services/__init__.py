"""Use cases: what the commands, and in time the routes, do."""
