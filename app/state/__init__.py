"""Durable state: small heads in a store, and the keys of tokens."""
