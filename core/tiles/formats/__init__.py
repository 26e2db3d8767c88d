"""File formats of detectors: what is in their headers, one module each."""
