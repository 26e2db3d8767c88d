"""Shared by all routes: identity, problems, negotiation, bodies, ranges and codings."""
