"""Loss streams: posted or read from files, and aggregated into reports."""
