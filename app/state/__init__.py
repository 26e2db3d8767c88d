"""What the service remembers: small heads in a store, and the keys of tokens."""
