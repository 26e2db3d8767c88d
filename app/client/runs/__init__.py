"""Durable runs: uploads that resume, rows while they arrive, reports of what is sealed."""
