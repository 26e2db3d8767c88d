"""Durable runs: resumable uploads of partitions, live rows, reports of the whole."""
