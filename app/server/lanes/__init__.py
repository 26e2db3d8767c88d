"""Lanes: processes by kind of work, and the acceptor that hands them connections."""
