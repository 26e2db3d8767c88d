"""Uploads of streams: two protocols on one resource, and the course of an append."""
