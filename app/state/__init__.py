"""Durable state: small records in a store, and the keys of tokens."""
