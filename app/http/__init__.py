"""What all routes share: identity, problems, negotiation, bodies, ranges, codings."""
