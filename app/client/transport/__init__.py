"""Requests and answers: what goes over the wire, and who sends it."""
