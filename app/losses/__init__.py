"""Loss streams: posted, read from files, aggregated into reports."""
