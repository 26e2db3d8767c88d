"""Portfolio analytics: losses of stored events, added up, layered and attributed."""
